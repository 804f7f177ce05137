// Requests of administrators' tools on this node: stop a job, change a mode, drain a node. Each is
// passed on with the user that the kernel reports, and its answer goes back to the tool.
//
// The coordinator decides what a user may do with a job. Conductor thread only.
#pragma once

#include <map>

#include "proto/attach.h"
#include "worker_agent/clients/attached_client.h"
#include "worker_agent/control/coordinator_connection.h"

namespace gradbus {

class AdminCalls {
 public:
  explicit AdminCalls(CoordinatorConnection& coordinator) : coordinator_(coordinator) {}

  // The answer arrives within 5 s. GB-S211 when it is no request.
  Status take(AttachedClient& client, const AdminPacket& packet, Nanos now);
  void answered(const v1::AdminAnswer& answer);
  // The deadline of the client's request has passed.
  void expire(AttachedClient& client);
  // The coordinator is gone, and would not know the requests if it came back.
  void end_all(const Status& why);
  // The client is about to be removed.
  void forget(const AttachedClient& client);

 private:
  Status may_drain(const AttachedClient& client, const std::string& node) const;

  CoordinatorConnection& coordinator_;
  std::map<uint64_t, AttachedClient*> calls_;  // by number
  uint64_t next_ = 1;
};

}  // namespace gradbus
