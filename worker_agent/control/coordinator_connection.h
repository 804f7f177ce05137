// The agent's connection to the coordinator: whether it is open, since when it is lost, the agent's
// id, and when the next attempt or heartbeat is due.
//
// It reads no clock. A stream that ended is opened again with back-off. A coordinator that is gone
// for less than a minute may return, so jobs and requests of ranks wait for it. Conductor thread
// only.
#pragma once

#include <cstdint>
#include <string>

#include "common/clock.h"
#include "common/status.h"
#include "worker_agent/control/coordinator_stream.h"

namespace gradbus {

class CoordinatorConnection {
 public:
  // `hello`: the description of this agent, the first message of every stream.
  CoordinatorConnection(std::string address, v1::Hello hello, CoordinatorStream& stream)
      : address_(std::move(address)), hello_(std::move(hello)), stream_(stream) {}

  const std::string& address() const { return address_; }
  const std::string& node() const { return hello_.name(); }
  // The coordinator has sent Welcome, and the stream has not ended since.
  bool connected() const { return connected_; }
  // As the last Welcome said.
  uint64_t agent_id() const { return agent_id_; }
  uint64_t incarnation() const { return incarnation_; }
  uint64_t welcomes() const { return welcomes_; }

  // Opens a stream.
  void say_hello();
  // No stream is open or being opened, and the back-off has passed.
  bool hello_due(Nanos now) const { return next_hello_ != 0 && now >= next_hello_; }
  void welcomed(const v1::Welcome& welcome, Nanos now);
  void ended(const std::string& why, Nanos now);

  // GB-C501, when the stream has ended.
  Status gone() const;
  // GB-C503 when the coordinator did not prove the cluster token.
  const Status& not_proven() const { return not_proven_; }
  // GB-C501 or C503, for those who ask while it is not connected.
  Status why_not_connected() const;
  // It is there, or was a minute ago.
  bool may_return(Nanos now) const;
  // It reports the nodes that were lost while it was gone by then, or does not return. 0: it was
  // not gone.
  Nanos reports_by() const { return reports_by_; }
  // GB-C501, for those who have waited for it in vain.
  Status given_up() const;

  // Before Welcome, only Hello may be sent. Returns false when the message was not sent.
  bool send(const v1::AgentMessage& message) { return connected_ && stream_.send(message); }
  size_t unsent() { return stream_.unsent(); }
  bool heartbeat_due(Nanos now) const { return connected_ && now >= next_heartbeat_; }
  void send_heartbeat(const v1::AgentMessage& heartbeat, Nanos now);

  // Whether this node takes new jobs. The coordinator refuses them. The agent keeps this for one
  // that is started again.
  void drained(const v1::NodeDrained& drained);

 private:
  const std::string address_;
  v1::Hello hello_;
  CoordinatorStream& stream_;
  bool connected_ = false;
  bool warned_ = false;   // that it cannot be reached
  Status not_proven_;     // why the token proof failed, if that is the reason
  Nanos gone_since_ = 0;  // 0: it is connected, or no stream has ended yet
  Nanos reports_by_ = 0;
  Nanos next_hello_ = 0;  // 0: a stream is open or being opened
  Nanos backoff_ = 0;
  uint64_t agent_id_ = 0;
  uint64_t incarnation_ = 0;
  uint64_t welcomes_ = 0;
  Nanos heartbeat_every_ = 500 * kMillisecond;
  Nanos next_heartbeat_ = 0;
};

}  // namespace gradbus
