// Sends what is traced of this node's jobs to the coordinator. Conductor thread only.
#pragma once

#include "worker_agent/control/coordinator_connection.h"
#include "worker_agent/control/worker_control_job.h"

namespace gradbus {

class TraceSender {
 public:
  explicit TraceSender(CoordinatorConnection& coordinator) : coordinator_(coordinator) {}

  // Begins or ends a trace, as the coordinator wants.
  void set(WorkerControlJob& job, const v1::TraceJob& message, Nanos now);
  // Sends the spans since the last call, if the job is traced.
  void send(WorkerControlJob& job, Nanos now) { send(job, now, 0); }
  // Every 50 ms, of all jobs: ends the traces that were not renewed.
  template <typename Jobs>
  void tick(const Jobs& jobs, Nanos now) {
    if (now < next_) return;
    next_ = now + kSendEvery;
    for (WorkerControlJob& job : jobs) {
      if (!job.tracer().on()) continue;
      send(job, now);
      job.tracer().tick(now);
    }
  }

 private:
  static constexpr Nanos kSendEvery = 50 * kMillisecond;

  void send(WorkerControlJob& job, Nanos now, uint64_t coordinator_ns);

  CoordinatorConnection& coordinator_;
  Nanos next_ = 0;
};

}  // namespace gradbus
