#include "worker_agent/control/running_jobs.h"

#include <algorithm>

#include "common/errors.h"
#include "common/log.h"
#include "common/utf8.h"
#include "proto/control.h"

namespace gradbus {
namespace {

// When a link breaks because a rank or a node died, the coordinator reports that within this time.
constexpr Nanos kCauseGrace = 700 * kMillisecond;
// A coordinator that is gone reports it when it has returned. Ranks wait this long at most.
constexpr Nanos kCauseGraceAway = 30 * kSecond;
constexpr Nanos kOrphanGrace = 30 * kSecond;

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

void send_failure(CoordinatorConnection& coordinator, uint64_t job, const Status& why) {
  v1::AgentMessage message;
  v1::JobFailure& failure = *message.mutable_job_failure();
  failure.set_job_id(job);
  failure.mutable_error()->set_code(static_cast<uint32_t>(why.code()));
  failure.mutable_error()->set_message(as_utf8(why.message()));
  coordinator.send(message);
}

WorkerControlJob* RunningJobs::find(uint64_t id) const {
  const auto found = jobs_.find(id);
  return found == jobs_.end() ? nullptr : found->second.get();
}

WorkerControlJob* RunningJobs::running(uint64_t id) const {
  WorkerControlJob* const job = find(id);
  return job == nullptr || job->failed() ? nullptr : job;
}

// ---- ends

void RunningJobs::report_failure(uint64_t id, const Status& why, Nanos now) {
  send_failure(coordinator_, id, why);
  fail(id, why, now);
}

void RunningJobs::fail(uint64_t id, const Status& why, Nanos now) {
  if (shard_jobs_.has(id)) return end_shard_job(id);
  WorkerControlJob* const job = running(id);
  if (job == nullptr) return;
  spdlog::error("job \"{}\" ends: {}", job->name(), why.message());
  traces_.send(*job, now);
  job->fail(why);
  broken_links_.erase(id);
}

void RunningJobs::end_shard_job(uint64_t id) {
  shard_jobs_.end(id);
  broken_links_.erase(id);
}

void RunningJobs::end(uint64_t id, Nanos now) {
  if (shard_jobs_.has(id)) return end_shard_job(id);
  WorkerControlJob* const ended = find(id);
  if (ended == nullptr) return;
  traces_.send(*ended, now);
  engine_.post(EndJob{id});
  broken_links_.erase(id);
  jobs_.erase(id);
}

void RunningJobs::broken(const JobBroken& event, Nanos now) {
  if (!shard_jobs_.has(event.job) && running(event.job) == nullptr) return;
  if (event.status.code() != Code::kPeerLost) return report_failure(event.job, event.status, now);
  broken_links_.try_emplace(event.job, BrokenLink{event.status, now + kCauseGrace});
}

void RunningJobs::stop() {
  for (WorkerControlJob& job : all())
    job.fail(
        Status(Code::kPeerLost, "GB-A301 AGENT_LOST: agent \"" + coordinator_.node() +
                                    "\" is stopping | next: gradbus status; then restart the job"));
  shard_jobs_.end_all();
}

void RunningJobs::tick(Nanos now) {
  for (auto link = broken_links_.begin(); link != broken_links_.end();) {
    const auto current = link++;
    const Nanos deadline = current->second.deadline;
    if (now < std::max(deadline, std::min(coordinator_.reports_by(), deadline + kCauseGraceAway)))
      continue;
    const auto expired = broken_links_.extract(current);
    report_failure(expired.key(), expired.mapped().status, now);
  }
  std::erase_if(jobs_, [&](const auto& entry) { return finished(*entry.second, now); });
}

// A failed job is over when its last local process has gone. If its coordinator is gone or was
// restarted, no JobEnded will arrive. Such a job waits for a while, because other nodes may still
// use our links, and a coordinator that returns is told why it has failed.
bool RunningJobs::finished(WorkerControlJob& job, Nanos now) {
  if (!job.deserted()) return false;
  const bool orphan = !coordinator_.connected() || job.incarnation() != coordinator_.incarnation();
  if (!orphan) return job.failed();
  if (!job.deserted_for(now, kOrphanGrace)) return false;
  if (!job.failed()) engine_.post(EndJob{job.id()});
  return true;
}

// ---- the coordinator

void RunningJobs::lost_lease() {
  broken_links_.clear();  // of jobs that end here, or that go on without this shard
  for (WorkerControlJob& job : all())
    job.fail(error("M004", "agent \"" + coordinator_.node() +
                               "\" lost its lease, which has ended job \"" + job.name() + "\""));
  shard_jobs_.end_all();
}

std::vector<uint64_t> RunningJobs::announce() {
  std::vector<uint64_t> announced;
  for (WorkerControlJob& job : all()) {
    if (job.incarnation() == coordinator_.incarnation()) continue;
    for (const v1::AgentMessage& part : job.announce(coordinator_.incarnation()))
      coordinator_.send(part);
    if (job.failed()) continue;
    spdlog::info("job \"{}\" is announced to the coordinator", job.name());
    announced.push_back(job.id());
  }
  for (const v1::AgentMessage& part : shard_jobs_.announce(coordinator_.incarnation()))
    coordinator_.send(part);
  return announced;
}

void RunningJobs::send_heartbeat(Nanos now) {
  v1::AgentMessage message;
  v1::Heartbeat& heartbeat = *message.mutable_heartbeat();
  size_t room = kMeasuredPerHeartbeatMax;
  for (const WorkerControlJob& job : all())
    if (!job.failed() && job.incarnation() == coordinator_.incarnation())
      job.report_counters(*heartbeat.add_jobs(), room, now);
  shard_jobs_.report_counters(coordinator_.incarnation(), heartbeat);
  v1::TransportCounters& counters = *heartbeat.mutable_transport();
  describe(engine_.transport_totals(), counters);
  counters.set_spins(engine_.spins());
  counters.set_spins_paid(engine_.spins_paid());
  coordinator_.send_heartbeat(message, now);
}

}  // namespace gradbus
