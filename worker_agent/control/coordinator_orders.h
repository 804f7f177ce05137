// Carries out the coordinator's orders for running jobs and paths. It finds the job and passes the
// order on. The engine's answers come back through mailboxes. Conductor thread only.
#pragma once

#include <array>
#include <memory>

#include "data_plane/path_probe.h"
#include "worker_agent/control/nccl_orders.h"
#include "worker_agent/control/running_jobs.h"
#include "worker_agent/job/stall_log.h"

namespace gradbus {

class CoordinatorOrders {
 public:
  // `shard`: this node is a parameter-server shard.
  CoordinatorOrders(bool shard, RunningJobs& jobs, Engine& engine, Mailbox<JobBroken>& broken,
                    CoordinatorConnection& coordinator, Nanos nccl_timeout)
      : shard_(shard),
        jobs_(jobs),
        engine_(engine),
        broken_(broken),
        coordinator_(coordinator),
        nccl_(jobs, coordinator, nccl_timeout) {}

  // Messages of other kinds are ignored.
  void take(const v1::CoordinatorMessage& message, Nanos now);
  // One of them is readable when take_answers() has something to do.
  std::array<int, 4> fds() const { return {broken_.fd(), answers_->fd(), gone_->fd(), nccl_.fd()}; }
  void take_answers(Nanos now);
  // For the jobs that start here.
  const NcclUse& nccl() const { return nccl_.use(); }

 private:
  void tensors_ready(const v1::TensorsReady& ready, Nanos now);
  void tensors_retired(const v1::TensorsRetired& retired);
  void tensor_refused(const v1::TensorRefused& refused);
  void stall(const v1::StallNotice& notice, Nanos now);
  void mode_changed(const v1::ModeChanged& change);
  void shard_lost(const v1::ShardLost& lost);
  void shards_changed(const v1::ShardsChanged& changed, Nanos now);
  void progress_query(const v1::ProgressQuery& query);
  void trace_job(const v1::TraceJob& message, Nanos now);
  void report_path(const PathAnswer& answer);

  const bool shard_;
  RunningJobs& jobs_;
  Engine& engine_;
  Mailbox<JobBroken>& broken_;
  CoordinatorConnection& coordinator_;
  NcclOrders nccl_;
  StallLog stall_log_;
  const std::shared_ptr<Mailbox<PathAnswer>> answers_ = std::make_shared<Mailbox<PathAnswer>>();
  const std::shared_ptr<Mailbox<TensorGone>> gone_ = std::make_shared<Mailbox<TensorGone>>();
};

}  // namespace gradbus
