// The part of the conductor that handles the coordinator and the engine.
#include <unistd.h>

#include <algorithm>

#include "common/errors.h"
#include "common/guarded.h"
#include "common/log.h"
#include "common/units.h"
#include "common/utf8.h"
#include "proto/control.h"
#include "worker_agent/control/conductor.h"

namespace gradbus {
namespace {

constexpr Nanos kBackoffMin = 100 * kMillisecond;
constexpr Nanos kBackoffMax = 1 * kSecond;
// When a link breaks because a rank or a node died, the coordinator reports that within this time.
constexpr Nanos kCauseGrace = 700 * kMillisecond;
constexpr Nanos kOrphanGrace = 30 * kSecond;

}  // namespace

WorkerControlJob* Conductor::job(uint64_t id) {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second.get();
}

// ---- the stream

void Conductor::say_hello() {
  next_reconnect_ = 0;
  v1::AgentMessage message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_name(options_.name);
  hello.set_version(GRADBUS_VERSION);
  hello.set_protocol(kControlProtocol);
  for (const auto& [transport, address] : options_.addresses)
    (*hello.mutable_addresses())[transport] = address;
  hello.set_cores(options_.cores);
  hello.set_reduce_ns(options_.reduce_ns);
  hello.set_shard(options_.shard);
  hello.set_bits_per_s(options_.bits_per_s);
  *hello.mutable_drained() = drained_;
  hello.set_pid(static_cast<uint64_t>(getpid()));
  control_.reconnect(message);
}

void Conductor::on_stream_ended(const std::string& why) {
  if (connected_ || !warned_)
    spdlog::warn("no connection to the coordinator {}: {}; trying again", options_.coordinator,
                 why);
  warned_ = true;
  connected_ = false;
  not_proven_ = why.starts_with("GB-C503") ? Status(Code::kPermission, why) : Status();
  backoff_ = std::clamp(backoff_ * 2, kBackoffMin, kBackoffMax);
  next_reconnect_ = monotonic_now() + backoff_;
  const Status gone = error("C501", "the coordinator " + options_.coordinator + " is gone");
  tell_readiness(not_proven_.ok() ? gone : not_proven_);
  coordinator_gone(gone);
}

// The same coordinator, after a reconnect, has removed our ranks when the stream broke. A restarted
// one does not know them.
void Conductor::on_welcome(const v1::Welcome& welcome) {
  if (welcome.incarnation() == incarnation_)
    for (auto& [id, running] : jobs_)
      running->fail(error("M004", "agent \"" + options_.name + "\" lost its lease; job \"" +
                                      running->name() + "\" continues without this node"));
  if (welcome.incarnation() == incarnation_) ps_jobs_.end_all();
  agent_id_ = welcome.agent_id();
  incarnation_ = welcome.incarnation();
  heartbeat_every_ = std::max<Nanos>(welcome.heartbeat_ms(), 10) * kMillisecond;
  next_heartbeat_ = 0;
  connected_ = true;
  ++welcomes_;
  tell_readiness({});
  not_proven_ = {};
  warned_ = false;
  backoff_ = 0;
  spdlog::info("coordinator {} knows this agent as \"{}\"", options_.coordinator, options_.name);
  announce_jobs();
  say_ready();
}

namespace {

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

void Conductor::take_control(const ControlEvent& event) {
  const Status taken = guarded([&] { on_control(event); });
  watch_full_sockets();  // many messages are passed on to clients
  if (taken.ok()) return;
  const uint64_t id = event.ended ? 0 : job_of(event.message);
  spdlog::error("a message of the coordinator, job id {}: {}", id, taken.message());
  if (id != 0) fail_job(id, taken, true);
}

void Conductor::on_control(const ControlEvent& event) {
  if (event.ended) return on_stream_ended(event.why);
  const v1::CoordinatorMessage& message = event.message;
  using Kind = v1::CoordinatorMessage;
  switch (message.message_case()) {
    case Kind::kWelcome: return on_welcome(message.welcome());
    case Kind::kJobStarted: return on_job_started(message.job_started());
    case Kind::kJoinRefused: return on_join_refused(message.join_refused());
    case Kind::kTensorsReady: return on_tensors_ready(message.tensors_ready());
    case Kind::kTensorsRetired: return on_tensors_retired(message.tensors_retired());
    case Kind::kTensorRefused:
      if (WorkerControlJob* running = job(message.tensor_refused().job_id()))
        running->refuse(message.tensor_refused());
      return;
    case Kind::kJobFailed: return on_job_failed(message.job_failed());
    case Kind::kProgressQuery: return on_progress_query(message.progress_query());
    case Kind::kMeasurePath: return on_measure_path(message.measure_path());
    case Kind::kStallNotice: return on_stall(message.stall_notice());
    case Kind::kModeChanged: return on_mode_changed(message.mode_changed());
    case Kind::kShardLost: return on_shard_lost(message.shard_lost());
    case Kind::kShardsChanged: return on_shards_changed(message.shards_changed());
    case Kind::kNcclConnect: return on_nccl_connect(message.nccl_connect());
    case Kind::kNcclSettled: return on_nccl_settled(message.nccl_settled());
    case Kind::kTraceJob: return on_trace_job(message.trace_job());
    case Kind::kAdminAnswer: return on_admin_answer(message.admin_answer());
    case Kind::kNodeDrained: return on_node_drained(message.node_drained());
    case Kind::kJobAnswer: return on_job_answer(message.job_answer());
    case Kind::kJobEnded: return on_job_ended(message.job_ended().job_id());
    case Kind::kRefused: return spdlog::error("{}", message.refused().error().message());
    case Kind::MESSAGE_NOT_SET: return;
  }
}

namespace {

void describe(const TransportTotals& totals, v1::TransportCounters& counters) {
  for (const PathTotals& path : totals.paths) {
    v1::LinkPath& shown = *counters.add_paths();
    shown.set_name(path.name);
    shown.set_links(path.links);
  }
  counters.set_switches(totals.switches);
  counters.set_sent_bytes(totals.sent_bytes);
  counters.set_received_bytes(totals.received_bytes);
  counters.set_send_copied_bytes(totals.send_copied_bytes);
  counters.set_receive_copied_bytes(totals.receive_copied_bytes);
  counters.set_shared_bytes(totals.shared_bytes);
}

}  // namespace

void Conductor::send_heartbeat() {
  next_heartbeat_ = monotonic_now() + heartbeat_every_;
  v1::AgentMessage message;
  v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
  for (const auto& [id, running] : jobs_)
    if (!running->failed() && running->incarnation() == incarnation_)
      running->report_counters(*heartbeat.add_jobs());
  ps_jobs_.report_counters(incarnation_, heartbeat);
  v1::TransportCounters& counters = *heartbeat.mutable_transport();
  describe(engine_.transport_totals(), counters);
  counters.set_spins(engine_.spins());
  counters.set_spins_paid(engine_.spins_paid());
  send(message);
}

// ---- paths

void Conductor::on_measure_path(const v1::MeasurePath& message) {
  engine_.post(MeasurePath{message.probe_id(), message.address(), path_answers_});
}

void Conductor::on_path_answer(const PathAnswer& answer) {
  v1::AgentMessage message;
  v1::PathMeasured& measured = *message.mutable_path_measured();
  measured.set_probe_id(answer.probe);
  measured.set_alpha_us(answer.alpha_us);
  measured.set_beta_ns(answer.beta_ns);
  send(message);
}

// ---- jobs

void Conductor::on_job_started(const v1::JobStarted& started) {
  if (options_.shard) return ps_jobs_.begin(started, agent_id_, incarnation_);
  uint32_t agent_index = 0;
  while (static_cast<int>(agent_index) < started.agents_size() &&
         started.agents(static_cast<int>(agent_index)).agent_id() != agent_id_)
    ++agent_index;
  std::vector<AttachedClient*> members;
  for (const v1::JobMember& member : started.members()) {
    if (member.agent_index() != agent_index) continue;
    for (auto& [fd, client] : clients_) {
      if (client->state != AttachedClient::State::kJoining || client->job != started.job() ||
          client->rank != member.rank())
        continue;
      client->job_id = started.job_id();
      client->local_rank = member.local_rank();
      members.push_back(client.get());
    }
  }
  // If a member has just died, the coordinator already knows it and ends the job.
  const auto mine = [&](const auto& member) { return member.agent_index() == agent_index; };
  if (std::count_if(started.members().begin(), started.members().end(), mine) !=
          static_cast<ptrdiff_t>(members.size()) ||
      members.empty())
    return;
  std::sort(members.begin(), members.end(),
            [](const auto* a, const auto* b) { return a->local_rank < b->local_rank; });
  auto running = std::make_unique<WorkerControlJob>(started, agent_index, incarnation_, members,
                                                    quota_, devices_, nccl_, engine_);
  if (const Status status = running->start(options_.cores); !status.ok()) {
    spdlog::error("{}", status.message());
    for (AttachedClient* member : members) {
      refuse_join(*member, status);
      rewatch(*member);
    }
    return send_failure(started.job_id(), status);
  }
  spdlog::info("job \"{}\" started: {} of {} ranks here, {}", started.job(), members.size(),
               started.members_size(), counted(started.agents_size(), "agent"));
  for (AttachedClient* member : members) rewatch(*member);
  jobs_[started.job_id()] = std::move(running);
}

void Conductor::on_join_refused(const v1::JoinRefused& refused) {
  for (auto& [fd, client] : clients_) {
    if (client->state != AttachedClient::State::kJoining || client->job != refused.job() ||
        client->rank != refused.rank())
      continue;
    refuse_join(*client, status_from(refused.error()));
    rewatch(*client);
    return;
  }
}

void Conductor::on_tensors_ready(const v1::TensorsReady& ready) {
  if (options_.shard) {
    if (const Status bad = ps_jobs_.place(ready); !bad.ok()) fail_job(ready.job_id(), bad, true);
    return;
  }
  WorkerControlJob* running = job(ready.job_id());
  if (running == nullptr || running->failed()) return;
  if (const Status placed = running->place(ready); !placed.ok())
    fail_job(ready.job_id(), placed, true);
  send_nccl_reports(*running);
}

void Conductor::on_tensors_retired(const v1::TensorsRetired& retired) {
  if (options_.shard) return ps_jobs_.retire(retired);
  if (WorkerControlJob* running = job(retired.job_id()); running != nullptr && !running->failed())
    running->retire(retired, tensors_gone_);
}

// ---- NCCL

void Conductor::send_nccl_reports(WorkerControlJob& job) {
  for (v1::NcclReport& report : job.take_nccl_reports()) {
    v1::AgentMessage message;
    *message.mutable_nccl_report() = std::move(report);
    send(message);
  }
}

// A failure in a round would also occur in the next job, and end that one.
void Conductor::on_nccl_news(const NcclNews& news) {
  if (news.ended.turn && nccl_.lost.ok()) {
    nccl_.lost = news.ended.status;
    spdlog::warn("NCCL is not used any more until this agent is restarted");
  }
  WorkerControlJob* running = job(news.job);
  if (running == nullptr || running->failed()) return;
  running->nccl_news(news.ended);
  send_nccl_reports(*running);
}

void Conductor::on_nccl_connect(const v1::NcclConnect& connect) {
  WorkerControlJob* running = job(connect.job_id());
  if (running == nullptr || running->failed()) return;
  running->connect_nccl(connect);
  send_nccl_reports(*running);
}

void Conductor::on_nccl_settled(const v1::NcclSettled& settled) {
  WorkerControlJob* running = job(settled.job_id());
  if (running == nullptr || running->failed()) return;
  if (const Status done = running->settle_nccl(settled); !done.ok())
    fail_job(settled.job_id(), done, true);
}

void Conductor::on_stall(const v1::StallNotice& notice) {
  WorkerControlJob* running = job(notice.job_id());
  if (running == nullptr || running->failed()) return;
  if (stall_log_.due(notice.job_id(), notice.tensor(), notice.round(), monotonic_now()))
    spdlog::warn("job \"{}\" waits: {}", running->name(), notice.text());
  running->notify(Code::kOk, notice.text());
}

void Conductor::on_mode_changed(const v1::ModeChanged& change) {
  WorkerControlJob* running = job(change.job_id());
  if (running == nullptr || running->failed()) return;
  spdlog::info("job \"{}\": \"{}\" changes to mode {} at the next fence", running->name(),
               change.group(), change.mode());
  running->tell_mode(change.group(), change.mode());
}

// Ignored by a job that has failed here or ended.
void Conductor::on_shard_lost(const v1::ShardLost& lost) {
  spdlog::warn("{}", lost.text());
  engine_.post(LoseShard{lost.job_id(), lost.shard()});
}

void Conductor::on_shards_changed(const v1::ShardsChanged& changed) {
  WorkerControlJob* running = job(changed.job_id());
  Status told;
  if (options_.shard) told = ps_jobs_.change(changed);
  if (running != nullptr && !running->failed()) told = running->change_shards(changed);
  if (!told.ok()) fail_job(changed.job_id(), told, true);
}

void Conductor::on_progress_query(const v1::ProgressQuery& query) {
  WorkerControlJob* running = job(query.job_id());
  if (running == nullptr) return;
  v1::AgentMessage message;
  running->report_progress(query, *message.mutable_progress_report());
  send(message);
}

// ---- ends

// Also for ranks whose job was announced but never started here, because one of them had died.
void Conductor::on_job_failed(const v1::JobFailed& failed) {
  const Status status = status_from(failed.error());
  for (auto& [fd, client] : clients_) {
    if (client->state != AttachedClient::State::kJoining || client->job_id != failed.job_id())
      continue;
    refuse_join(*client, status);
    rewatch(*client);
  }
  fail_job(failed.job_id(), status, false);
}

void Conductor::on_job_broken(const JobBroken& broken) {
  WorkerControlJob* running = job(broken.job);
  if (!ps_jobs_.has(broken.job) && (running == nullptr || running->failed())) return;
  if (broken.status.code() != Code::kPeerLost) return fail_job(broken.job, broken.status, true);
  broken_links_.try_emplace(broken.job, BrokenLink{broken.status, monotonic_now() + kCauseGrace});
}

void Conductor::fail_job(uint64_t id, const Status& status, bool tell_coordinator) {
  if (tell_coordinator) send_failure(id, status);
  if (ps_jobs_.has(id)) return end_ps_job(id);
  WorkerControlJob* running = job(id);
  if (running == nullptr || running->failed()) return;
  spdlog::error("job \"{}\" ends: {}", running->name(), status.message());
  send_trace(*running);
  running->fail(status);
  broken_links_.erase(id);
  watch_full_sockets();
}

void Conductor::end_ps_job(uint64_t id) {
  ps_jobs_.end(id);
  broken_links_.erase(id);
}

void Conductor::send_failure(uint64_t id, const Status& status) {
  v1::AgentMessage message;
  v1::JobFailure& failure = *message.mutable_job_failure();
  failure.set_job_id(id);
  failure.mutable_error()->set_code(static_cast<uint32_t>(status.code()));
  failure.mutable_error()->set_message(as_utf8(status.message()));
  send(message);
}

void Conductor::on_job_ended(uint64_t id) {
  if (ps_jobs_.has(id)) return end_ps_job(id);
  WorkerControlJob* const ended = job(id);
  if (ended == nullptr) return;
  send_trace(*ended);
  engine_.post(EndJob{id});
  broken_links_.erase(id);
  jobs_.erase(id);
}

// A failed job is over when its last local process has gone. If its coordinator is gone or was
// restarted, no JobEnded will arrive. Such a job waits for a while, because other nodes may still
// use our links.
void Conductor::remove_finished_jobs() {
  const Nanos now = monotonic_now();
  std::erase_if(jobs_, [&](const auto& entry) {
    WorkerControlJob& running = *entry.second;
    if (!running.deserted()) return false;
    if (running.failed()) return true;
    const bool orphan = !connected_ || running.incarnation() != incarnation_;
    if (!orphan || !running.deserted_for(now, kOrphanGrace)) return false;
    engine_.post(EndJob{running.id()});
    return true;
  });
}

}  // namespace gradbus
