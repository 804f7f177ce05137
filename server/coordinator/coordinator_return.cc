// Jobs that run and that this coordinator learns of from their nodes, after a restart.
#include <cstring>

#include "server/coordinator/coordinator.h"

namespace gradbus {

bool Coordinator::is_free(const std::string& name) {
  return find_live_job(name) == nullptr && !returning_.has_name(name);
}

// A node announces what the coordinator of before knew. So it can be none of this one's jobs.
void Coordinator::running_job(uint64_t id, const Agent& agent, const v1::RunningJob& part,
                              Nanos now) {
  const uint64_t job_id = part.job_id();
  const std::string& name = part.started().job();
  const auto refuse = [&](const Status& why) {
    if (part.has_started()) tell_lost(id, job_id, clean_text(name, kJobNameBytesMax), why);
  };
  if (const Status before = returning_.lost_before(job_id); !before.ok()) return refuse(before);
  if (!checked(job_id != 0 && !jobs_.contains(job_id), id, "RunningJob"))
    return refuse(short_error("J410", "job id " + std::to_string(job_id) + " of " +
                                          agent.info.name + " is known already"));
  const Nanos patience = Nanos{options_.lease_ms} * kMillisecond + kReturnMargin;
  const Status added = returning_.add(id, agent.info, part, now + patience);
  if (!added.ok()) refuse(added);
}

void Coordinator::settle_returning(Nanos now) {
  if (returning_.empty()) return;
  for (ReturningJob& job : returning_.take(now)) {
    if (job.problem.ok()) job.problem = may_take_back(job, now);
    if (!job.problem.ok()) {
      end_returning(job, job.problem);
    } else {
      take_back(std::move(job), now);
    }
  }
}

// Ranks that have begun to join a job of this name did not know that it runs.
Status Coordinator::may_take_back(const ReturningJob& job, Nanos now) {
  CoordinatorJob* const other = find_live_job(job.name());
  const Status taken =
      short_error("J402", "job " + in_quotes(job.name()) +
                              " runs already; its coordinator was restarted, and another job took "
                              "its name meanwhile");
  if (other != nullptr && other->state() == CoordinatorJob::State::kRunning) return taken;
  if (other != nullptr) other->fail(taken, now);
  if (live_jobs_.size() < kLiveJobsMax) return {};
  return short_error("A304", "the coordinator has " + std::to_string(kLiveJobsMax) + " jobs");
}

void Coordinator::end_returning(const ReturningJob& job, const Status& why) {
  outbox_.note("job " + in_quotes(job.name()) + " is not taken back: " + why.message());
  returning_.remember_lost(job.id, why);
  for (const uint64_t agent : job.announcers()) tell_lost(agent, job.id, job.name(), why);
}

void Coordinator::tell_lost(uint64_t agent, uint64_t job, const std::string& name,
                            const Status& why) {
  v1::CoordinatorMessage message;
  message.mutable_job_failed()->set_job_id(job);
  message.mutable_job_failed()->set_job(name);
  *message.mutable_job_failed()->mutable_error() = to_proto(why);
  outbox_.send(agent, std::move(message));
}

void Coordinator::take_back(ReturningJob job, Nanos now) {
  const v1::JobStarted& started = job.started;
  const User owner{started.uid(), clean_text(started.user(), kUserBytesMax)};
  const CoordinatorJob::Identity identity{started.job(), job.id, started.link_key(), owner,
                                          started.secret()};
  live_jobs_[started.job()] = job.id;
  jobs_[job.id] = std::make_unique<CoordinatorJob>(
      identity, static_cast<uint32_t>(started.members_size()), options_, now, &outbox_);
  CoordinatorJob& back = *jobs_[job.id];
  back.take_back(job, now);
  if (back.live()) back.set_path(paths_.worst(back.membership().agents()));
  for (const ReturningJob::Kept& kept : job.kept) {
    const auto at = agents_.find(kept.agent);
    if (at != agents_.end()) dispatch(kept.agent, at->second, kept.message, now);
  }
}

}  // namespace gradbus
