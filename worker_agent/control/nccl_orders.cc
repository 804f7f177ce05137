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
void NcclOrders::take_news() {
  for (const NcclNews& news : use_.news->take()) {
    if (news.ended.turn && use_.lost.ok()) {
      use_.lost = news.ended.status;
      spdlog::warn("NCCL is not used any more until this agent is restarted");
    }
    WorkerControlJob* const job = jobs_.running(news.job);
    if (job == nullptr) continue;
    job->nccl_news(news.ended);
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
