// The records of the RDMA transport: a bootstrap connection and its link. The transport's thread
// owns them. Their behaviour is in rdma.cc and the files next to it.
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
  FrameHeader header;  // sends only
  RegisteredBytes bytes;
  uint64_t token = 0;
  uint64_t number = 0;  // sends that the device has
};

// One queue pair of a link with its posts.
struct RdmaLane {
  RdmaLane(std::unique_ptr<QueuePair> made, uint32_t posts_max)
      : pair(std::move(made)), waiting(posts_max), sends(posts_max), receives(posts_max) {}

  std::unique_ptr<QueuePair> pair;
  // `waiting`: sends that the device does not have yet. `sends`: those it has, in the same order.
  BoundedQueue<RdmaPost> waiting;
  BoundedQueue<RdmaPost> sends;
  BoundedQueue<RdmaPost> receives;
  uint64_t next_number = 0;  // number of the next send

  bool empty() const { return sends.empty() && receives.empty(); }
};

// The TCP connection of one link (hello.h).
struct Bootstrap {
  enum class Stage : uint8_t {
    kConnecting,  // opener: the kernel is connecting
    kHello,       // acceptor: waits for the opener's hello
    kAnswer,      // opener: waits for the acceptor's answer
    kReady,       // acceptor: waits for the opener's ready byte
    kUp,          // waits for the farewell
    kRetired,     // closed; freed at the next poll
  };

  Bootstrap(Fd socket, std::string peer_address, Stage first, Nanos until)
      : fd(std::move(socket)), peer(std::move(peer_address)), stage(first), deadline(until) {}

  Fd fd;
  std::string peer;  // address, for messages
  Stage stage;
  Nanos deadline;            // for all stages before kUp
  RdmaLink* link = nullptr;  // null at the acceptor before kUp
  RdmaHello hello;
  size_t filled = 0;            // bytes of `hello` received so far
  std::vector<RdmaLane> lanes;  // acceptor in kReady only
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
  // Posts of the caller. Both sides put number i on lane i modulo the number of lanes, so each
  // frame meets the receive that was posted for it.
  BoundedQueue<RdmaPost> sends_waiting;
  BoundedQueue<RdmaPost> receives_waiting;
  size_t send_lane = 0;  // lane of the next send
  size_t receive_lane = 0;
  // Posts whose final event was not yet delivered to the caller.
  uint32_t sends = 0;
  uint32_t receives = 0;
  Code end_code = Code::kOk;  // valid from kEnding on
  Nanos deadline = 0;         // of kEnding
};

}  // namespace gradbus
