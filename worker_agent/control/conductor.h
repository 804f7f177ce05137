// The conductor role: the agent's control plane. It is one thread with one epoll, which gives each
// event to the part that handles it. A step never waits for it.
//
// The parts read no clock: they get the time of the event. Packets that they leave in the queues of
// clients are sent at once, or when the sockets have room (ClientTable::watch_full_sockets).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "common/metrics/tally.h"
#include "common/trust/secret.h"
#include "data_plane/engine.h"
#include "worker_agent/clients/attach_listener.h"
#include "worker_agent/clients/client_table.h"
#include "worker_agent/control/agent_metrics.h"
#include "worker_agent/control/client_requests.h"
#include "worker_agent/control/control_link.h"
#include "worker_agent/control/coordinator_connection.h"
#include "worker_agent/control/coordinator_orders.h"
#include "worker_agent/control/readiness.h"
#include "worker_agent/control/running_jobs.h"

namespace gradbus {

struct ConductorOptions {
  std::string name;                              // of this node
  std::string coordinator;                       // address
  std::optional<Secret> token;                   // of the cluster
  std::map<std::string, std::string> addresses;  // transport -> data address
  uint32_t cores = 1;
  double reduce_ns = 0;  // time to add one byte; 0: not measured
  uint64_t clients_max = 256;
  uint64_t shm_bytes_max = 0;
  HugePages huge_pages = HugePages::kTransparent;
  bool shard = false;  // a parameter-server shard: accepts no clients
  // Configured speed of the network interface; 0: unknown.
  uint64_t bits_per_s = 0;
  std::shared_ptr<SnapshotKeeper> keeper;    // of a shard that keeps snapshots
  std::vector<CudaSharing> device_sharings;  // ways to share GPU memory with ranks: Devices
  Nanos nccl_timeout = 20 * kSecond;         // of a collective
  int ready_fd = -1;                         // gets one line of JSON when clients can be served
  DaemonMonitor* monitor = nullptr;          // outlives the conductor; null: nobody is told
};

class Conductor {
 public:
  Conductor(ConductorOptions options, AttachListener listener, Engine& engine,
            Mailbox<JobBroken>& broken);
  ~Conductor();

  // Serves until `on_signal`, which is called when `signal_fd` becomes readable, returns true.
  void run(int signal_fd, const std::function<bool()>& on_signal);
  // For the next streams to the coordinator. For `on_signal`.
  void set_token(const Secret& token) { control_.set_token(token); }
  const Tally& turns() const { return turns_; }  // grows while the thread is not stuck

 private:
  void on_ready(int fd);
  void take_messages();
  void tick();
  void keep_lease();

  // ---- clients
  void on_client(AttachedClient& client);
  void on_process_ended(AttachedClient& client);
  void accept_clients();
  void drop_client(AttachedClient& client);
  void drop_idle_clients(Nanos now);

  // ---- the coordinator
  void take_control(const ControlEvent& event);
  void on_control(const v1::CoordinatorMessage& message, Nanos now);
  void on_stream_ended(const std::string& why, Nanos now);
  void on_welcome(const v1::Welcome& welcome, Nanos now);
  void on_job_started(const v1::JobStarted& started);
  void start_job(const v1::JobStarted& started, uint32_t agent_index);
  void on_job_failed(const v1::JobFailed& failed, Nanos now);

  const ConductorOptions options_;
  AttachListener listener_;
  Engine& engine_;
  WatchedFds watched_;
  ShmQuota quota_;
  Devices devices_;
  ControlLink control_;
  CoordinatorConnection coordinator_;
  ClientTable clients_;
  RunningJobs jobs_;
  CoordinatorOrders orders_;
  ClientRequests requests_;
  AgentMetrics metrics_;
  Readiness readiness_;
  Tally turns_;
};

}  // namespace gradbus
