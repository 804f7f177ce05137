// NCCL between the nodes of jobs: what the coordinator has agreed with all nodes, and the events of
// this node's NCCL processes. Conductor thread only.
#pragma once

#include "worker_agent/control/coordinator_connection.h"
#include "worker_agent/control/running_jobs.h"

namespace gradbus {

class NcclOrders {
 public:
  // `timeout` is of a collective.
  NcclOrders(RunningJobs& jobs, CoordinatorConnection& coordinator, Nanos timeout)
      : jobs_(jobs), coordinator_(coordinator) {
    use_.timeout = timeout;
  }

  // For the jobs that start here.
  const NcclUse& use() const { return use_; }
  // Readable when handle_events() has something to do.
  int fd() const { return use_.events->fd(); }
  void handle_events();
  void connect(const v1::NcclConnect& order);
  void settle(const v1::NcclSettled& order, Nanos now);
  // What a job has to tell the coordinator.
  void send_reports(WorkerControlJob& job);

 private:
  RunningJobs& jobs_;
  CoordinatorConnection& coordinator_;
  NcclUse use_;
};

}  // namespace gradbus
