// Clients that have asked to join a job and wait for its start. The coordinator starts a job when
// all its ranks have asked, or refuses it. Conductor thread only.
#pragma once

#include <string>
#include <vector>

#include "proto/attach.h"
#include "worker_agent/clients/client_table.h"
#include "worker_agent/control/coordinator_connection.h"

namespace gradbus {

class PendingJoins {
 public:
  PendingJoins(ClientTable& clients, CoordinatorConnection& coordinator)
      : clients_(clients), coordinator_(coordinator) {}

  // GB-J401, J402, J408 or C501 when it cannot be asked.
  Status ask(AttachedClient& client, const JoinPacket& packet, Nanos now);
  // The clients of a job that starts, by local rank. Empty: one of them has died. The coordinator
  // knows that, and ends the job.
  std::vector<AttachedClient*> take(const v1::JobStarted& started, uint32_t agent_index);
  void refuse(const v1::JoinRefused& refused);
  // The job failed before it was started here, because a rank of it had died.
  void refuse_job(uint64_t job, const Status& why);
  // Its deadline has passed: the coordinator does not answer.
  void expire(AttachedClient& client);
  void refuse_all(const Status& why);

 private:
  Status check(const AttachedClient& client, const JoinPacket& packet) const;
  Status check_others(const AttachedClient& client, const std::string& job, int64_t rank) const;

  ClientTable& clients_;
  CoordinatorConnection& coordinator_;
};

}  // namespace gradbus
