// The conductor role: the agent's control plane. It owns the clients' sockets, the jobs of this
// node and the connection to the coordinator, and passes memory and links to the engine. It is one
// thread with one epoll. A step never waits for it.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>

#include "common/metrics/job_pages.h"
#include "common/metrics/tally.h"
#include "common/trust/secret.h"
#include "data_plane/engine.h"
#include "server/parameter_server/ps_control_jobs.h"
#include "worker_agent/control/attach_listener.h"
#include "worker_agent/control/attached_client.h"
#include "worker_agent/control/control_link.h"
#include "worker_agent/control/worker_control_job.h"
#include "worker_agent/gpu/devices.h"
#include "worker_agent/job/stall_log.h"
#include "worker_agent/job/worker_commands.h"

namespace gradbus {

class DaemonMonitor;

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
  using Clients = std::map<int, std::unique_ptr<AttachedClient>>;
  struct BrokenLink {  // waits a moment for the coordinator to report the real cause
    Status status;
    Nanos deadline;
  };

  void on_ready(int fd);
  void take_messages();
  void tick();
  void keep_lease();

  // ---- clients (conductor_clients.cc)
  void accept_clients();
  void on_client(AttachedClient& client);
  void on_process_ended(int client_fd);
  Status on_packet(AttachedClient& client, Packet& packet);
  Status on_join(AttachedClient& client, const JoinPacket& packet);
  Status check_join(const AttachedClient& client, const JoinPacket& packet) const;
  Status on_register(AttachedClient& client, const RegisterPacket& packet);
  Status on_unregister(AttachedClient& client, const UnregisterPacket& packet);
  Status on_blocked(AttachedClient& client, const BlockedPacket& packet);
  // (conductor_devices.cc)
  Status on_try_device(AttachedClient& client, const TryDevicePacket& packet);
  Status on_device_tried(AttachedClient& client, const DeviceTriedPacket& packet);
  // (conductor_questions.cc)
  Status on_question(AttachedClient& client, const QuestionPacket& packet);
  void on_job_answer(const v1::JobAnswer& answer);
  void answer_question(AttachedClient& client, const Status& status, const std::string& text);
  void end_questions(const Status& why);
  // (conductor_admin.cc)
  Status on_admin(AttachedClient& client, const AdminPacket& packet);
  void on_node_drained(const v1::NodeDrained& message);
  Status may_drain(const AttachedClient& client, const std::string& node) const;
  void on_admin_answer(const v1::AdminAnswer& answer);
  void answer_admin(AttachedClient& client, const Status& status);
  void end_admin_calls(const Status& why);
  Status no_coordinator() const;
  void on_leave(AttachedClient& client);
  void flush_registrations();
  void refuse_join(AttachedClient& client, const Status& why);
  void refuse_tensor(AttachedClient& client, uint32_t request, const Status& why);
  void drop_client(int fd);
  void lost_client(const AttachedClient& client);
  void report_lost(const AttachedClient& client, const std::string& why);
  void look_for_ended_processes(Nanos now);
  void expire_silent_clients(Nanos now);
  void drop_stuck_clients();

  // ---- coordinator (conductor_control.cc)
  void on_control(const ControlEvent& event);
  void take_control(const ControlEvent& event);
  void on_stream_ended(const std::string& why);
  void on_welcome(const v1::Welcome& welcome);
  void on_job_started(const v1::JobStarted& started);
  void on_join_refused(const v1::JoinRefused& refused);
  void on_tensors_ready(const v1::TensorsReady& ready);
  void on_tensors_retired(const v1::TensorsRetired& retired);
  void on_stall(const v1::StallNotice& notice);
  void on_mode_changed(const v1::ModeChanged& change);
  void on_shard_lost(const v1::ShardLost& lost);
  void on_shards_changed(const v1::ShardsChanged& changed);
  void on_nccl_news(const NcclNews& news);
  void on_nccl_connect(const v1::NcclConnect& connect);
  void on_nccl_settled(const v1::NcclSettled& settled);
  void send_nccl_reports(WorkerControlJob& job);
  void on_progress_query(const v1::ProgressQuery& query);
  void on_measure_path(const v1::MeasurePath& message);
  void on_path_answer(const PathAnswer& answer);
  void on_job_failed(const v1::JobFailed& failed);
  void on_job_ended(uint64_t job);
  void on_job_broken(const JobBroken& broken);
  void fail_job(uint64_t job, const Status& status, bool tell_coordinator);
  void end_ps_job(uint64_t job);
  void send_failure(uint64_t job, const Status& status);
  void send_heartbeat();
  // (conductor_trace.cc)
  void on_trace_job(const v1::TraceJob& message);
  void send_traces(Nanos now);
  void send_trace(WorkerControlJob& job, uint64_t coordinator_ns = 0);
  // (conductor_metrics.cc)
  void publish_metrics(Nanos now);
  void tell_readiness(const Status& ready);
  void say_hello();
  void say_ready();
  // Before Welcome, only Hello may be sent.
  bool send(const v1::AgentMessage& message) { return connected_ && control_.send(message); }
  // (conductor_return.cc)
  void coordinator_gone(const Status& why);
  bool coordinator_may_return() const;
  void end_patience();
  void announce_jobs();
  void ask_again(uint64_t job);
  void ask_for(const AttachedClient& client, const TensorSpec& spec);
  WorkerControlJob* job(uint64_t id);
  void remove_finished_jobs();

  bool watch(int fd, uint32_t events);
  void rewatch(const AttachedClient& client);
  // After packets for several clients: the rest goes out when their sockets have room again.
  void watch_full_sockets();

  const ConductorOptions options_;
  AttachListener listener_;
  Engine& engine_;
  Mailbox<JobBroken>& broken_;
  Mailbox<ControlEvent> control_events_;
  const std::shared_ptr<Mailbox<PathAnswer>> path_answers_ =
      std::make_shared<Mailbox<PathAnswer>>();
  const std::shared_ptr<Mailbox<TensorGone>> tensors_gone_ =
      std::make_shared<Mailbox<TensorGone>>();
  Fd epoll_;
  ShmQuota quota_;
  Devices devices_{[this] { keep_lease(); }, options_.device_sharings};
  NcclUse nccl_;
  Clients clients_;  // by socket
  // Next check for ended processes of clients without a pidfd.
  Nanos next_look_ = 0;
  std::map<int, int> client_of_process_;  // pidfd -> socket
  std::map<uint64_t, std::unique_ptr<WorkerControlJob>> jobs_;
  PsControlJobs ps_jobs_;
  StallLog stall_log_;
  std::map<uint64_t, BrokenLink> broken_links_;
  std::map<std::pair<uint64_t, uint32_t>, v1::AgentMessage>
      registrations_,    // by job and rank: those of this turn
      unregistrations_;  // by job and rank; they are sent first

  std::map<uint64_t, int> admin_calls_;  // request -> socket of the client
  uint64_t next_admin_call_ = 1;
  v1::NodeDrained drained_;  // as the coordinator said last

  bool connected_ = false;  // the coordinator has sent Welcome
  Nanos gone_since_ = 0;    // since when the coordinator is gone; 0: it is connected, or never was
  Status not_proven_;       // why the token proof failed, if that is the reason
  uint64_t agent_id_ = 0;
  uint64_t incarnation_ = 0;
  Nanos heartbeat_every_ = 500 * kMillisecond;
  Nanos next_heartbeat_ = 0;
  Nanos next_traces_ = 0;
  Nanos next_metrics_ = 0;
  JobPages job_pages_;
  Tally turns_;
  uint64_t welcomes_ = 0;     // of the coordinator
  Nanos next_reconnect_ = 0;  // 0: a stream is open or being opened
  Nanos backoff_ = 0;
  bool said_ready_ = false;
  bool warned_ = false;
  ControlLink control_;  // last, because its threads post to the mailbox above
};

}  // namespace gradbus
