// The packets of attached clients: each is checked against the client's state and passed to the
// part that handles it. Also how a client leaves or is lost. Conductor thread only.
#pragma once

#include <string>

#include "common/daemon/rare_lines.h"
#include "worker_agent/clients/client_table.h"
#include "worker_agent/control/admin_calls.h"
#include "worker_agent/control/coordinator_connection.h"
#include "worker_agent/control/pending_joins.h"
#include "worker_agent/control/rank_questions.h"
#include "worker_agent/control/running_jobs.h"
#include "worker_agent/control/tensor_requests.h"

namespace gradbus {

class ClientRequests {
 public:
  ClientRequests(ClientTable& clients, RunningJobs& jobs, CoordinatorConnection& coordinator,
                 Devices& devices)
      : jobs_(jobs),
        coordinator_(coordinator),
        devices_(devices),
        joins_(clients, coordinator),
        tensors_(clients, coordinator, devices),
        questions_(coordinator),
        admin_calls_(coordinator) {}

  // An error ends the client, and the job that it runs.
  Status take(AttachedClient& client, const Packet& packet, Nanos now);

  PendingJoins& joins() { return joins_; }
  TensorRequests& tensors() { return tensors_; }
  RankQuestions& questions() { return questions_; }
  AdminCalls& admin_calls() { return admin_calls_; }

  // The client broke the protocol: its job ends.
  void end_client(AttachedClient& client, const Status& why, Nanos now);
  // It does not read its answers: its job ends, and the waiting packets are dropped.
  void end_given_up(const AttachedClient& client, Nanos now);
  // Its deadline has passed.
  void expire(AttachedClient& client);
  // It is about to be removed. A job that it still runs has lost a rank.
  void client_gone(AttachedClient& client, Nanos now);
  // Requests that no other coordinator would know are answered with `why`. Others wait.
  void coordinator_gone(const Status& why);

 private:
  void log_end(const AttachedClient& client, const Status& why, Nanos now);

  Status take_first(AttachedClient& client, const Packet& packet, Nanos now);
  Status take_running(AttachedClient& client, const Packet& packet, Nanos now);
  Status unregister(AttachedClient& client, const UnregisterPacket& packet);
  Status blocked(AttachedClient& client, const BlockedPacket& packet, Nanos now);
  Status try_device(AttachedClient& client, const TryDevicePacket& packet);
  void leave(AttachedClient& client, Nanos now);
  void lost(const AttachedClient& client, Nanos now);
  void report_left(const AttachedClient& client, bool clean, const std::string& why);

  RunningJobs& jobs_;
  CoordinatorConnection& coordinator_;
  Devices& devices_;
  PendingJoins joins_;
  TensorRequests tensors_;
  RankQuestions questions_;
  AdminCalls admin_calls_;
  RareLines jobless_{10};  // of clients without a job
};

}  // namespace gradbus
