// The records of the RDMA transport: a bootstrap connection and the link that it belongs to. The
// transport's thread owns them; what they do is in rdma.cc and the files beside it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/fd.h"
#include "transport/bounded_queue.h"
#include "transport/rdma/queue_pair.h"
#include "transport/transport.h"

namespace gradbus {

struct RdmaLink;

// A send or a receive that has not ended.
struct RdmaPost {
  FrameHeader header;  // of a send
  RegisteredBytes bytes;
  uint64_t token = 0;
  uint64_t number = 0;  // of a send that the device has
};

// One of a link's queue pairs and what is its.
struct RdmaLane {
  RdmaLane(std::unique_ptr<QueuePair> made, uint32_t posts_max)
      : pair(std::move(made)), waiting(posts_max), sends(posts_max), receives(posts_max) {}

  std::unique_ptr<QueuePair> pair;
  BoundedQueue<RdmaPost> waiting;  // sends; then, in the same order, had by the device:
  BoundedQueue<RdmaPost> sends;
  BoundedQueue<RdmaPost> receives;
  uint64_t next_number = 0;  // of the next send

  bool empty() const { return sends.empty() && receives.empty(); }
};

// The TCP connection of one link (hello.h).
struct Bootstrap {
  enum class Stage : uint8_t {
    kConnecting,  // the opener's, until the kernel has connected it
    kHello,       // the acceptor's: waits for the opener's hello
    kAnswer,      // the opener's: waits for the acceptor's
    kReady,       // the acceptor's: waits for the opener's last word
    kUp,          // waits for the farewell
    kRetired,     // closed; freed at the next poll
  };

  Bootstrap(Fd socket, std::string peer_address, Stage first, Nanos until)
      : fd(std::move(socket)), peer(std::move(peer_address)), stage(first), deadline(until) {}

  Fd fd;
  std::string peer;  // its address, for messages
  Stage stage;
  Nanos deadline;            // of everything before kUp
  RdmaLink* link = nullptr;  // the acceptor's has none before kUp
  RdmaHello hello;
  size_t filled = 0;            // bytes of `hello` that have come
  std::vector<RdmaLane> lanes;  // the acceptor's, in kReady
};

struct RdmaLink {
  enum class State : uint8_t {
    kConnecting,
    kUp,
    kEnding,  // the device still holds posts
    kClosed,  // only events are left
  };

  explicit RdmaLink(uint32_t posts_max) : sends_waiting(posts_max), receives_waiting(posts_max) {}

  bool empty() const {
    return std::all_of(lanes.begin(), lanes.end(), [](const auto& lane) { return lane.empty(); });
  }

  LinkId id;
  State state = State::kConnecting;
  std::string peer;
  FrameHeader hello;
  std::unique_ptr<Bootstrap> bootstrap;
  std::vector<RdmaLane> lanes;
  // Given by the caller: number i goes to lane i modulo their count, on either side, so the next
  // frame always meets the next receive.
  BoundedQueue<RdmaPost> sends_waiting;
  BoundedQueue<RdmaPost> receives_waiting;
  size_t send_lane = 0;  // of the next one
  size_t receive_lane = 0;
  // Posted, and the event that ends the post not yet handed to the caller.
  uint32_t sends = 0;
  uint32_t receives = 0;
  Code end_code = Code::kOk;  // from kEnding on
  Nanos deadline = 0;         // of kEnding
};

}  // namespace gradbus
