#include "worker_agent/control/conductor.h"

#include <unistd.h>

#include <nlohmann/json.hpp>

#include "common/cgroup.h"
#include "common/check.h"
#include "common/daemon/daemon_monitor.h"
#include "common/errors.h"
#include "common/guarded.h"
#include "common/log.h"
#include "common/units.h"
#include "data_plane/coordinator_plans.h"
#include "proto/control.h"

namespace gradbus {
namespace {

constexpr int kTickMs = 50;
constexpr int kClientsPerTurn = 16;
constexpr int kIdleTickMs = 250;  // without clients only the coordinator must be watched
constexpr int kPacketsPerTurn = 256;

v1::Hello hello_from(const ConductorOptions& options) {
  v1::Hello hello;
  hello.set_name(options.name);
  hello.set_version(GRADBUS_VERSION);
  hello.set_protocol(kControlProtocol);
  for (const auto& [transport, address] : options.addresses)
    (*hello.mutable_addresses())[transport] = address;
  hello.set_cores(options.cores);
  hello.set_reduce_ns(options.reduce_ns);
  hello.set_shard(options.shard);
  hello.set_bits_per_s(options.bits_per_s);
  hello.mutable_drained();  // it takes new jobs until it is told otherwise
  hello.set_pid(static_cast<uint64_t>(getpid()));
  return hello;
}

std::string ready_line(const ConductorOptions& options, const std::string& socket) {
  nlohmann::json line{{"socket", socket}, {"pid", getpid()}, {"name", options.name}};
  for (const auto& [transport, address] : options.addresses) line["address"] = address;
  if (options.monitor != nullptr && !options.monitor->address().empty())
    line["metrics"] = options.monitor->address();
  if (options.monitor != nullptr && !options.monitor->health_address().empty())
    line["health"] = options.monitor->health_address();
  // A path need not be UTF-8.
  return line.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

// The job of messages that make an agent allocate memory for a job; 0: no job.
uint64_t job_of(const v1::CoordinatorMessage& message) {
  using Kind = v1::CoordinatorMessage;
  switch (message.message_case()) {
    case Kind::kJobStarted: return message.job_started().job_id();
    case Kind::kTensorsReady: return message.tensors_ready().job_id();
    case Kind::kTensorRefused: return message.tensor_refused().job_id();
    case Kind::kShardsChanged: return message.shards_changed().job_id();
    case Kind::kNcclConnect: return message.nccl_connect().job_id();
    case Kind::kNcclSettled: return message.nccl_settled().job_id();
    case Kind::kProgressQuery: return message.progress_query().job_id();
    default: return 0;
  }
}

}  // namespace

Conductor::Conductor(ConductorOptions options, AttachListener listener, Engine& engine,
                     Mailbox<JobBroken>& broken)
    : options_(std::move(options)),
      listener_(std::move(listener)),
      engine_(engine),
      quota_{options_.shm_bytes_max, 0, [this] { keep_lease(); }, options_.huge_pages,
             [] { return read_cgroup_limits().memory; }},
      devices_([this] { keep_lease(); }, options_.device_sharings),
      control_(options_.coordinator, options_.token),
      coordinator_(options_.coordinator, hello_from(options_), control_),
      clients_(watched_, options_.clients_max),
      jobs_(engine, coordinator_, options_.keeper),
      orders_(options_.shard, jobs_, engine, broken, coordinator_, options_.nccl_timeout),
      requests_(clients_, jobs_, coordinator_, devices_),
      metrics_(options_.monitor, jobs_, clients_, coordinator_, quota_, engine),
      readiness_(options_.monitor, options_.coordinator, options_.ready_fd,
                 ready_line(options_, listener_.path())) {
  if (!options_.shard) GRADBUS_CHECK(watched_.add(listener_.fd()));
  GRADBUS_CHECK(watched_.add(control_.events().fd()));
  for (const int fd : orders_.fds()) GRADBUS_CHECK(watched_.add(fd));
}

Conductor::~Conductor() {
  jobs_.stop();
  control_.close();
}

void Conductor::run(int signal_fd, const std::function<bool()>& on_signal) {
  GRADBUS_CHECK(watched_.add(signal_fd));
  readiness_.not_serving(
      error("C501", "the coordinator " + options_.coordinator + " has not answered yet"));
  coordinator_.say_hello();
  for (;;) {
    bool clients_wait = false;
    for (const int fd : watched_.wait(clients_.empty() ? kIdleTickMs : kTickMs)) {
      if (fd == signal_fd && on_signal()) return;
      clients_wait = clients_wait || fd == listener_.fd();
      on_ready(fd);
    }
    // Last, because a new client's socket may reuse the number of one that was closed a moment ago.
    // An event of that one may still be among the current events.
    if (clients_wait) accept_clients();
    const Status turn = guarded([this] { take_messages(); });
    if (!turn.ok()) spdlog::error("a turn of the conductor: {}", turn.message());
    const Status watched = guarded([this] { clients_.watch_full_sockets(); });
    if (!watched.ok()) spdlog::error("a turn of the conductor: {}", watched.message());
  }
}

// A few at a time: a flood of connections must not keep heartbeats waiting.
void Conductor::accept_clients() {
  for (int i = 0; i < kClientsPerTurn; ++i) {
    std::optional<AcceptedClient> accepted = listener_.accept();
    if (!accepted) return;
    if (clients_.is_full()) {
      if (AttachedClient* const idle = clients_.longest_silent()) {
        requests_.expire(*idle);
        drop_client(*idle);
      }
    }
    clients_.add(std::move(*accepted), monotonic_now());
  }
}

// Requests of clients and of the coordinator are guarded where they are handled. Other errors
// belong to no job.
void Conductor::take_messages() {
  turns_.add(1);
  for (const ControlEvent& event : control_.events().take()) take_control(event);
  orders_.take_answers(monotonic_now());
  requests_.tensors().flush();
  tick();
}

void Conductor::on_ready(int fd) {
  if (AttachedClient* const client = clients_.of_process(fd)) return on_process_ended(*client);
  if (AttachedClient* const client = clients_.find(fd)) on_client(*client);
}

// Called also while a large segment is reserved, so it reads the clock.
void Conductor::keep_lease() {
  const Nanos now = monotonic_now();
  if (coordinator_.heartbeat_due(now)) jobs_.send_heartbeat(now);
}

void Conductor::tick() {
  keep_lease();
  const Nanos now = monotonic_now();
  jobs_.traces().tick(jobs_.all(), now);
  metrics_.tick(now);
  if (coordinator_.hello_due(now)) coordinator_.say_hello();
  drop_idle_clients(now);
  if (!coordinator_.connected() && !coordinator_.may_return(now))
    requests_.tensors().refuse_all(coordinator_.given_up());
  jobs_.tick(now);
}

// ---- clients

// Packets that it sent before its death count, for example a Leave. Then the socket does not matter
// any more, even if a child of that process still has it open.
void Conductor::on_process_ended(AttachedClient& client) {
  const int fd = client.fd();
  on_client(client);
  if (AttachedClient* const left = clients_.find(fd)) drop_client(*left);
}

void Conductor::on_client(AttachedClient& client) {
  for (int i = 0; i < kPacketsPerTurn; ++i) {
    Packet packet;
    Status why;
    const ReceivePacket received = client.receive(packet, why);
    if (received == ReceivePacket::kNothing) break;
    if (received == ReceivePacket::kEnd) return drop_client(client);
    const Nanos now = monotonic_now();
    if (received == ReceivePacket::kPacket) {
      clients_.count_packet();
      why = guarded([&] { return requests_.take(client, packet, now); });
    }
    if (why.ok()) continue;
    requests_.end_client(client, why, now);
    return drop_client(client);
  }
  if (!client.flush()) drop_client(client);
}

void Conductor::drop_client(AttachedClient& client) {
  requests_.client_gone(client, monotonic_now());
  clients_.remove(client.fd());
}

void Conductor::drop_idle_clients(Nanos now) {
  for (const int fd : clients_.ended(now)) on_process_ended(*clients_.find(fd));
  for (const int fd : clients_.silent(now)) {
    requests_.expire(*clients_.find(fd));
    drop_client(*clients_.find(fd));
  }
  for (const int fd : clients_.given_up()) {
    requests_.end_given_up(*clients_.find(fd), now);
    drop_client(*clients_.find(fd));
  }
}

// ---- the coordinator

void Conductor::take_control(const ControlEvent& event) {
  const Nanos now = monotonic_now();
  const Status taken = guarded(
      [&] { event.ended ? on_stream_ended(event.why, now) : on_control(event.message, now); });
  if (taken.ok()) return;
  const uint64_t id = event.ended ? 0 : job_of(event.message);
  spdlog::error("a message of the coordinator, job id {}: {}", id, taken.message());
  if (id != 0) jobs_.report_failure(id, taken, monotonic_now());
}

void Conductor::on_control(const v1::CoordinatorMessage& message, Nanos now) {
  using Kind = v1::CoordinatorMessage;
  switch (message.message_case()) {
    case Kind::kWelcome: return on_welcome(message.welcome(), now);
    case Kind::kRefused: return spdlog::error("{}", message.refused().error().message());
    case Kind::kJobStarted: return on_job_started(message.job_started());
    case Kind::kJobFailed: return on_job_failed(message.job_failed(), now);
    case Kind::kJobEnded: return jobs_.end(message.job_ended().job_id(), now);
    case Kind::kJoinRefused: return requests_.joins().refuse(message.join_refused());
    case Kind::kJobAnswer: return requests_.questions().answered(message.job_answer());
    case Kind::kAdminAnswer: return requests_.admin_calls().answered(message.admin_answer());
    case Kind::kNodeDrained: return coordinator_.drained(message.node_drained());
    default: return orders_.take(message, now);
  }
}

void Conductor::on_stream_ended(const std::string& why, Nanos now) {
  coordinator_.ended(why, now);
  engine_.post(ExpectReports{coordinator_.reports_by()});
  const Status gone = coordinator_.gone();
  readiness_.not_serving(coordinator_.not_proven().ok() ? gone : coordinator_.not_proven());
  requests_.coordinator_gone(gone);
}

// The same coordinator, after a reconnect, has removed our ranks when the stream broke. A restarted
// one does not know them.
void Conductor::on_welcome(const v1::Welcome& welcome, Nanos now) {
  if (welcome.incarnation() == coordinator_.incarnation()) jobs_.lost_lease();
  coordinator_.welcomed(welcome, now);
  engine_.post(ExpectReports{coordinator_.reports_by()});
  readiness_.serving();
  for (const uint64_t job : jobs_.announce()) requests_.tensors().repeat(job);
}

void Conductor::on_job_started(const v1::JobStarted& started) {
  if (options_.shard)
    return jobs_.of_shard().begin(started, coordinator_.agent_id(), coordinator_.incarnation());
  uint32_t agent_index = 0;
  while (static_cast<int>(agent_index) < started.agents_size() &&
         started.agents(static_cast<int>(agent_index)).agent_id() != coordinator_.agent_id())
    ++agent_index;
  start_job(started, agent_index);
}

void Conductor::start_job(const v1::JobStarted& started, uint32_t agent_index) {
  const std::vector<AttachedClient*> members = requests_.joins().take(started, agent_index);
  if (members.empty()) return;
  auto job = std::make_unique<WorkerControlJob>(started, agent_index, coordinator_.incarnation(),
                                                members, quota_, devices_, orders_.nccl(), engine_);
  if (const Status status = job->start(options_.cores); !status.ok()) {
    spdlog::error("{}", status.message());
    for (AttachedClient* member : members) member->refuse_join(status);
    return send_failure(coordinator_, started.job_id(), status);
  }
  spdlog::info("job \"{}\" started: {} of {} ranks here, {}", started.job(), members.size(),
               started.members_size(), counted(started.agents_size(), "agent"));
  jobs_.add(std::move(job));
}

// Also for ranks whose job was announced but never started here, because one of them had died.
void Conductor::on_job_failed(const v1::JobFailed& failed, Nanos now) {
  const Status status = status_from(failed.error());
  requests_.joins().refuse_job(failed.job_id(), status);
  jobs_.fail(failed.job_id(), status, now);
}

}  // namespace gradbus
