// One attached process for the conductor: its socket, its identity, its requests.
//
// Conductor thread only.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "shared_memory/attach_socket.h"
#include "shared_memory/tensor_spec.h"
#include "worker_agent/clients/attach_listener.h"
#include "worker_agent/clients/device_trials.h"
#include "worker_agent/job/channel.h"

namespace gradbus {

// Answers to all tensors for which a client may wait at once, of 200 bytes each.
inline constexpr size_t kWaitingBytesMax = 16u << 20;

class AttachedClient {
 public:
  // kAsking: a tool that waits for the answer to its one request.
  enum class State : uint8_t { kNew, kJoining, kRunning, kLeft, kAsking };
  struct Wanted {  // a tensor that it requested to register
    uint32_t request = 0;
    TensorSpec spec;
    std::optional<DeviceId> device = {};  // where it wants its elements; empty: host memory
  };

  explicit AttachedClient(AcceptedClient accepted);

  int fd() const { return accepted_.socket.get(); }
  int process_fd() const { return accepted_.process.get(); }
  // For a client without process_fd().
  bool process_ended() const { return accepted_.identity.ended(); }
  uid_t uid() const { return accepted_.uid; }
  pid_t pid() const { return accepted_.pid; }
  uint64_t number() const { return accepted_.number; }

  // Queues a packet with copies of the descriptors and tries to send it.
  template <typename T>
  void send(const T& packet, const std::vector<int>& fds = {}) {
    queue(&packet, sizeof(packet), fds);
  }
  // Sends as much as the socket accepts. Returns false when the client is gone.
  bool flush();
  // Its join, or its first packet, is refused: nothing more is expected from it.
  void refuse_join(const Status& why);
  // Refuses its request to register a tensor.
  void refuse_tensor(uint32_t request, const Status& why);
  // A packet could not be queued: the client reads nothing while kWaitingBytesMax wait, or there is
  // no descriptor for it. Its packets were dropped, and the client must be too.
  const Status& given_up() const { return given_up_; }
  void forget_packets() { outgoing_.clear(), waiting_bytes_ = 0; }
  bool wants_to_write() const { return !outgoing_.empty(); }
  ReceivePacket receive(Packet& packet, Status& why);

  // "rank 3 (pid 4711)"
  std::string who() const;

  State state = State::kNew;
  std::string job;      // name, from kJoining on
  uint64_t job_id = 0;  // from kRunning on
  uint32_t rank = 0;
  uint32_t world_size = 0;
  uint32_t local_rank = 0;
  std::shared_ptr<Channel> channel;
  std::map<std::string, Wanted> wanted;
  DeviceTrials trials;
  Nanos deadline = 0;  // kNew: of its first packet; kJoining, kAsking: of the answer to it
  // Earlier blocked reports are ignored: of the loop, and of a thread beside it.
  std::array<Nanos, 2> next_blocked{};

 private:
  struct Outgoing {
    std::vector<std::byte> bytes;  // without the zeros at its end: most of a text's field
    size_t packet_bytes = 0;       // with them
    std::vector<Fd>
        fds;  // duplicates: the segment may be gone, and its number reused, when they are sent
  };
  void queue(const void* packet, size_t bytes, const std::vector<int>& fds);
  void give_up(const Status& why);

  AcceptedClient accepted_;
  std::deque<Outgoing> outgoing_;
  size_t waiting_bytes_ = 0;  // of outgoing_
  Status given_up_;
};

}  // namespace gradbus
