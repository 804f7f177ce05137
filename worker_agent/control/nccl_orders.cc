#include "worker_agent/control/nccl_orders.h"

#include "common/log.h"

namespace gradbus {

void NcclOrders::send_reports(WorkerControlJob& job) {
  for (v1::NcclReport& report : job.take_nccl_reports()) {
    v1::AgentMessage message;
    *message.mutable_nccl_report() = std::move(report);
    coordinator_.send(message);
  }
}

// A failure in a round would also occur in the next job, and end that one.
void NcclOrders::handle_events() {
  for (const NcclEvent& event : use_.events->take()) {
    if (event.ended.turn && use_.lost.ok()) {
      use_.lost = event.ended.status;
      spdlog::warn("NCCL is not used any more until this agent is restarted");
    }
    WorkerControlJob* const job = jobs_.running(event.job);
    if (job == nullptr) continue;
    job->handle_nccl_event(event.ended);
    send_reports(*job);
  }
}

void NcclOrders::connect(const v1::NcclConnect& order) {
  WorkerControlJob* const job = jobs_.running(order.job_id());
  if (job == nullptr) return;
  job->connect_nccl(order);
  send_reports(*job);
}

void NcclOrders::settle(const v1::NcclSettled& order, Nanos now) {
  WorkerControlJob* const job = jobs_.running(order.job_id());
  if (job == nullptr) return;
  if (const Status done = job->settle_nccl(order); !done.ok())
    jobs_.report_failure(order.job_id(), done, now);
}

}  // namespace gradbus
