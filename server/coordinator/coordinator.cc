// Routes messages: finds the job a message is about and lets it answer.
#include "server/coordinator/coordinator.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "proto/numbers.h"

namespace gradbus {
namespace {

constexpr int kLinkPathsMax = 16;
constexpr size_t kLinkPathBytesMax = 320;

uint64_t nonzero(std::mt19937_64& random) { return std::max<uint64_t>(random(), 1); }

bool is_sane(const v1::TransportCounters& counters) {
  return counters.paths_size() <= kLinkPathsMax &&
         std::all_of(counters.paths().begin(), counters.paths().end(), [](const auto& path) {
           return is_printable_name(path.name(), kLinkPathBytesMax);
         });
}

// The job has not started, is of this size, and no process has this rank.
bool has_room_for(const CoordinatorJob& job, const v1::JoinJob& message) {
  return job.state() == CoordinatorJob::State::kJoining &&
         message.world_size() == job.membership().world_size() &&
         job.membership().find(message.rank()) == nullptr;
}

}  // namespace

Coordinator::Coordinator(const CoordinatorOptions& options, Nanos now)
    : options_(options), started_at_(now), random_(options.seed), incarnation_(nonzero(random_)) {
  outbox_.events().add(EventKind::kStarted, "", "",
                       "coordinator of version " GRADBUS_VERSION " was started", now);
}

// A flood of nonsense must not become a flood of log lines: the first few, then powers of two.
bool Coordinator::checked(bool sensible, uint64_t agent, const char* what) {
  if (sensible) return true;
  ++warnings_;
  if (warnings_ <= 16 || std::has_single_bit(warnings_)) {
    const auto at = agents_.find(agent);
    const std::string who = at == agents_.end() ? "an agent" : describe(at->second);
    outbox_.note("ignored a " + std::string(what) + " from " + who + " that makes no sense (" +
                 std::to_string(warnings_) + " so far)");
  }
  return false;
}

void Coordinator::receive(uint64_t id, const v1::AgentMessage& message, Nanos now) {
  const auto at = agents_.find(id);
  if (at == agents_.end()) return;  // its lease has ended; the stream is being closed
  at->second.heard = now;
  outbox_.count_received(message.message_case());
  dispatch(id, at->second, message, now);
  settle_returning(now);
  admit_waiting(now);
}

void Coordinator::dispatch(uint64_t id, Agent& agent, const v1::AgentMessage& message, Nanos now) {
  using Message = v1::AgentMessage;
  if (message.has_hello()) return hello(id, agent, message.hello(), now);
  if (!agent.welcomed) {
    return refuse(id, short_error("D602", "the first message of an agent must be Hello"));
  }
  if (returning_.keep(id, message)) return;
  const auto job = [this](uint64_t job_id) { return find_job(job_id); };
  switch (message.message_case()) {
    case Message::kHeartbeat: return heartbeat(id, agent, message.heartbeat(), now);
    case Message::kJoinJob: return join_job(id, agent, message.join_job(), now);
    case Message::kRegisterTensors: return register_tensors(id, message.register_tensors(), now);
    case Message::kRankLeft: return rank_left(id, message.rank_left(), now);
    case Message::kRankBlocked: {
      CoordinatorJob* of = job(message.rank_blocked().job_id());
      checked(of != nullptr && of->rank_blocked(id, message.rank_blocked(), now), id,
              "RankBlocked");
      return;
    }
    case Message::kProgressReport: {
      CoordinatorJob* of = job(message.progress_report().job_id());
      const auto& report = message.progress_report();
      checked(of != nullptr && of->progress_report(id, report, now), id, "ProgressReport");
      return;
    }
    case Message::kJobFailure: {
      CoordinatorJob* of = job(message.job_failure().job_id());
      checked(of != nullptr && of->agent_failure(id, message.job_failure(), now), id, "JobFailure");
      return;
    }
    case Message::kNcclReport: {
      CoordinatorJob* of = job(message.nccl_report().job_id());
      checked(of != nullptr && of->nccl_report(id, message.nccl_report()), id, "NcclReport");
      return;
    }
    case Message::kUnregisterTensors: {
      CoordinatorJob* of = job(message.unregister_tensors().job_id());
      checked(of != nullptr && of->unregister_tensors(id, message.unregister_tensors()), id,
              "UnregisterTensors");
      return;
    }
    case Message::kRunningJob: return running_job(id, agent, message.running_job(), now);
    case Message::kAdminCall: return admin_call(id, agent, message.admin_call(), now);
    case Message::kGoodbye: return leave(id, agent, now);
    case Message::kTraceRecords:
      checked(traces_.receive(id, message.trace_records(), now), id, "TraceRecords");
      return;
    case Message::kJobQuestion: return job_question(id, message.job_question());
    case Message::kPathMeasured: return path_measured(id, message.path_measured(), now);
    default: checked(false, id, "message without content");
  }
}

void Coordinator::heartbeat(uint64_t id, Agent& agent, const v1::Heartbeat& message, Nanos now) {
  const v1::TransportCounters& transport = message.transport();
  if (!checked(is_sane(transport), id, "Heartbeat")) return;
  agent.transport = transport;
  for (const v1::JobCounters& counters : message.jobs()) {
    if (returning_.has(counters.job_id())) continue;
    CoordinatorJob* job = find_job(counters.job_id());
    if (!checked(job != nullptr && job->count(id, counters, now), id, "Heartbeat")) return;
  }
}

Status Coordinator::check_join(const v1::JoinJob& message) const {
  if (!is_printable_name(message.job(), kJobNameBytesMax)) {
    return short_error("D602", "a job's name must have 1 to 127 printable bytes, not \"" +
                                   clean_text(message.job(), 40) + "\"");
  }
  if (message.world_size() == 0 || message.world_size() > kRanksMax ||
      message.rank() >= message.world_size()) {
    return short_error("J401", "job " + in_quotes(message.job()) + ": rank " +
                                   std::to_string(message.rank()) + " of world size " +
                                   std::to_string(message.world_size()) + ", pid " +
                                   std::to_string(message.pid()));
  }
  return Status();
}

void Coordinator::join_job(uint64_t id, const Agent& agent, const v1::JoinJob& message, Nanos now) {
  if (Status bad = check_join(message); !bad.ok()) {
    checked(false, id, "JoinJob");
    return refuse_join(outbox_, id, clean_text(message.job(), kJobNameBytesMax), message.rank(),
                       message.join(), bad);
  }
  const CoordinatorJob* running = find_live_job(message.job());
  const bool same_user = running != nullptr && running->identity().owner.uid == message.uid();
  const bool waits = same_user && !has_room_for(*running, message);
  if ((waits || returning_.has_name(message.job())) && waiting_.add(id, message, now)) return;
  admit(id, agent, message, now);
}

void Coordinator::admit_waiting(Nanos now) {
  if (waiting_.empty()) return;
  const auto may_join = [this](const v1::JoinJob& join) {
    const CoordinatorJob* job = find_live_job(join.job());
    return is_free(join.job()) || (job != nullptr && has_room_for(*job, join));
  };
  for (const WaitingJoins::Join& join : waiting_.take(may_join, now)) {
    const auto at = agents_.find(join.agent);
    if (at != agents_.end()) admit(join.agent, at->second, join.message, now);
  }
}

void Coordinator::admit(uint64_t id, const Agent& agent, const v1::JoinJob& message, Nanos now) {
  CoordinatorJob* job = find_live_job(message.job());
  if (const Status no = takes_jobs(id, agent, job, message); !no.ok())
    return refuse_join(outbox_, id, message.job(), message.rank(), message.join(), no);
  if (job == nullptr && live_jobs_.size() >= kLiveJobsMax) {
    return refuse_join(
        outbox_, id, message.job(), message.rank(), message.join(),
        short_error("A304", "the coordinator has " + std::to_string(kLiveJobsMax) + " jobs"));
  }
  if (job == nullptr && returning_.has_name(message.job()))
    return refuse_join(outbox_, id, message.job(), message.rank(), message.join(),
                       short_error("J402", "job " + in_quotes(message.job()) +
                                               " runs, and its nodes have not all come back since "
                                               "the coordinator was restarted"));
  CoordinatorJob& joined = job != nullptr ? *job : create_job(message, now);
  joined.join(id, agent.info, message, shards(), now);
  if (joined.state() != CoordinatorJob::State::kRunning) return;
  joined.set_path(paths_.worst(joined.membership().agents()));
  traces_.started(joined, now);
}

AgentInfos Coordinator::shards() const {
  AgentInfos found;
  for (const auto& [id, agent] : agents_)
    if (agent.welcomed && agent.info.shard && !drained_nodes_.has(agent.info.name))
      found.emplace(id, agent.info);
  return found;
}

CoordinatorJob& Coordinator::create_job(const v1::JoinJob& message, Nanos now) {
  uint64_t id = nonzero(random_);
  while (jobs_.contains(id)) id = nonzero(random_);
  live_jobs_[message.job()] = id;
  const User owner{message.uid(), clean_text(message.user(), kUserBytesMax)};
  const Secret links = hmac(options_.key, {"job's links", std::to_string(id)});
  const Secret secret = hmac(options_.key, {"job's secret", std::to_string(id)});
  uint64_t link_key = 0;
  std::memcpy(&link_key, links.data(), sizeof(link_key));
  const CoordinatorJob::Identity identity{message.job(), id, link_key, owner, text_of(secret)};
  return *(jobs_[id] = std::make_unique<CoordinatorJob>(identity, message.world_size(), options_,
                                                        now, &outbox_));
}

void Coordinator::register_tensors(uint64_t id, const v1::RegisterTensors& message, Nanos now) {
  CoordinatorJob* job = find_job(message.job_id());
  // Its nodes have heard of the end, and this crossed the message.
  const Status before = returning_.lost_before(message.job_id());
  if (!before.ok()) return refuse_tensors(id, message, before);
  const bool sensible = job != nullptr && job->register_tensors(id, message, now);
  if (checked(sensible, id, "RegisterTensors")) return;
  refuse_tensors(
      id, message,
      short_error("D602", "the coordinator knows no rank " + std::to_string(message.rank()) +
                              " of job id " + std::to_string(message.job_id()) + " on this agent"));
}

// Somebody may wait for an answer, for example after the coordinator was restarted.
void Coordinator::refuse_tensors(uint64_t id, const v1::RegisterTensors& message,
                                 const Status& status) {
  for (int i = 0; i < std::min(message.tensors_size(), kTensorsPerMessageMax); ++i) {
    const std::string& name = message.tensors(i).name();
    if (name.size() > kTensorNameBytesMax) continue;
    v1::CoordinatorMessage refusal;
    refusal.mutable_tensor_refused()->set_job_id(message.job_id());
    refusal.mutable_tensor_refused()->set_name(name);
    refusal.mutable_tensor_refused()->add_ranks(message.rank());
    *refusal.mutable_tensor_refused()->mutable_error() = to_proto(status);
    outbox_.send(id, std::move(refusal));
  }
}

// Before a job starts its ranks know only its name. The name of a job that has just ended is no
// mistake: the two messages crossed.
void Coordinator::rank_left(uint64_t id, const v1::RankLeft& message, Nanos now) {
  const bool by_name = message.job_id() == 0;
  if (by_name && waiting_.forget(id, message)) return;
  CoordinatorJob* job = by_name ? find_live_job(message.job()) : find_job(message.job_id());
  if (by_name && job == nullptr) return;
  checked(job != nullptr && job->rank_left(id, message, now), id, "RankLeft");
}

CoordinatorJob* Coordinator::find_job(uint64_t job_id) {
  const auto at = jobs_.find(job_id);
  return at == jobs_.end() ? nullptr : at->second.get();
}

CoordinatorJob* Coordinator::find_live_job(const std::string& name) {
  const auto at = live_jobs_.find(name);
  if (at == live_jobs_.end()) return nullptr;
  CoordinatorJob* job = find_job(at->second);
  return job != nullptr && job->live() ? job : nullptr;
}

void Coordinator::tick(Nanos now) {
  end_silent_leases(now);
  settle_returning(now);
  for (auto& [id, job] : jobs_) job->tick(now);
  admit_waiting(now);
  forget_ended_jobs(now);
  lost_nodes_.forget_old(now);
  traces_.tick(now, [this](uint64_t job_id) {
    const CoordinatorJob* const job = find_job(job_id);
    return job == nullptr || !job->live();
  });
  measure_next_path(now);
}

// Ended jobs stay visible for ten minutes, and no more than a hundred of them.
void Coordinator::forget_ended_jobs(Nanos now) {
  std::erase_if(live_jobs_, [&](const auto& entry) {
    const CoordinatorJob* job = find_job(entry.second);
    return job == nullptr || !job->live();
  });
  std::vector<std::pair<Nanos, uint64_t>> ended;
  for (const auto& [id, job] : jobs_) {
    if (!job->live()) ended.emplace_back(job->ended_at(), id);
  }
  std::sort(ended.begin(), ended.end());
  for (size_t i = 0; i < ended.size(); ++i) {
    const bool crowded = ended.size() - i > kEndedJobsMax;
    if (crowded || now - ended[i].first > kEndedJobKept) jobs_.erase(ended[i].second);
  }
}

}  // namespace gradbus
