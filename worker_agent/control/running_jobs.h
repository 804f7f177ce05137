// The jobs of this node, from their start to their end: those with ranks here, and those of which
// this node is a parameter-server shard.
//
// A broken link waits a moment before it ends its job, because the coordinator then reports the
// real cause. A failed job stays until its last local process has gone. Conductor thread only.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "data_plane/engine.h"
#include "server/parameter_server/ps_control_jobs.h"
#include "worker_agent/clients/owned_values.h"
#include "worker_agent/control/coordinator_connection.h"
#include "worker_agent/control/trace_sender.h"
#include "worker_agent/control/worker_control_job.h"

namespace gradbus {

class RunningJobs {
 public:
  RunningJobs(Engine& engine, CoordinatorConnection& coordinator,
              std::shared_ptr<SnapshotKeeper> keeper)
      : engine_(engine),
        coordinator_(coordinator),
        traces_(coordinator),
        shard_jobs_(engine, std::move(keeper)) {}

  void add(std::unique_ptr<WorkerControlJob> job) { jobs_[job->id()] = std::move(job); }
  // Null: this node has no ranks in it.
  WorkerControlJob* find(uint64_t id) const;
  // Null also for a job that has failed.
  WorkerControlJob* running(uint64_t id) const;
  auto all() const { return OwnedValues(jobs_); }
  PsControlJobs& of_shard() { return shard_jobs_; }
  TraceSender& traces() { return traces_; }

  // The job ends with this error, for its ranks here and in the engine.
  void fail(uint64_t id, const Status& why, Nanos now);
  // The same for a failure that the coordinator does not know yet.
  void report_failure(uint64_t id, const Status& why, Nanos now);
  // All of its ranks have left.
  void end(uint64_t id, Nanos now);
  // The engine could not continue a job.
  void broken(const JobBroken& event, Nanos now);
  // All jobs fail, because this agent stops.
  void stop();

  // The same coordinator, after a reconnect, has removed our ranks when the stream broke.
  void lost_lease();
  // Tells a coordinator that was restarted of the jobs, which it does not know. Returns those that
  // it was told of.
  std::vector<uint64_t> announce();
  void send_heartbeat(Nanos now);
  // Ends jobs whose links have broken for no other reason, and forgets those that nobody uses.
  void tick(Nanos now);

 private:
  struct BrokenLink {
    Status status;
    Nanos deadline;
  };
  void end_shard_job(uint64_t id);
  bool finished(WorkerControlJob& job, Nanos now);

  Engine& engine_;
  CoordinatorConnection& coordinator_;
  TraceSender traces_;
  std::map<uint64_t, std::unique_ptr<WorkerControlJob>> jobs_;
  PsControlJobs shard_jobs_;
  std::map<uint64_t, BrokenLink> broken_links_;  // by job
};

// Tells the coordinator that a job cannot go on here.
void send_failure(CoordinatorConnection& coordinator, uint64_t job, const Status& why);

}  // namespace gradbus
