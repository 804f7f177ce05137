// The client's end of the attach socket: joining, and packets in and out afterwards.
//
// Guarded by the session's control lock; nothing here runs per step.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "client_lib/src/launch_env.h"
#include "common/fd.h"
#include "common/segment.h"
#include "common/status.h"
#include "shared_memory/attach_socket.h"

namespace gradbus {

struct Attachment {
  JoinedPacket joined;
  std::shared_ptr<Segment> channel;
  std::shared_ptr<Segment> arena;  // first segment
  Fd doorbell;                     // eventfd that wakes the agent
};

class AgentConnection {
 public:
  // A300 when nothing listens on `path`, A302 when the system says no.
  static Result<AgentConnection> open(const std::string& path);

  // Blocks until the job has started: all ranks are there. Errors: the agent's, A301, J404, and
  // that of `stop`, which is called several times a second.
  using Stop = std::function<Status()>;
  Result<Attachment> join(
      const LaunchIdentity& identity, Nanos start_timeout,
      const Stop& stop = [] { return Status(); });

  // Waits at most a second for room. A301 when the agent is gone.
  Status send(const void* packet, size_t bytes);
  // kOk with a packet, kBusy when there is none now, A301 when the agent has gone, or S211.
  Status receive(Packet& packet);
  bool wait(Nanos timeout) const { return wait_readable(socket_.get(), timeout); }
  void close() { socket_.reset(); }
  // The agent has not taken all packets that were sent to it.
  bool has_unread() const;

 private:
  explicit AgentConnection(Fd socket) : socket_(std::move(socket)) {}
  Result<Packet> await_joined(Nanos deadline, const Stop& stop);

  Fd socket_;
};

}  // namespace gradbus
