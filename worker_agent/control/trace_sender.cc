#include "worker_agent/control/trace_sender.h"

#include <utility>

namespace gradbus {
namespace {

// A coordinator that reads slowly gets no more: spans stay where they are, and are dropped there.
constexpr size_t kUnsentMax = 64;

}  // namespace

// Answered at once, so that the coordinator can find the offset of this node's clock.
void TraceSender::set(WorkerControlJob& job, const v1::TraceJob& message, Nanos now) {
  if (!message.on()) send(job, now);
  job.tracer().set(message.on(), now);
  if (message.on()) send(job, now, message.coordinator_ns());
}

void TraceSender::send(WorkerControlJob& job, Nanos now, uint64_t coordinator_ns) {
  if (!job.tracer().on() || !coordinator_.connected() || coordinator_.unsent() > kUnsentMax) return;
  std::vector<v1::TraceRecords> parts = job.tracer().take(now);
  if (parts.empty() && coordinator_ns != 0) parts.emplace_back();
  for (v1::TraceRecords& part : parts) {
    part.set_job_id(job.id());
    part.set_coordinator_ns(std::exchange(coordinator_ns, 0));
    part.set_agent_ns(static_cast<uint64_t>(now));
    v1::AgentMessage message;
    *message.mutable_trace_records() = std::move(part);
    coordinator_.send(message);
  }
}

}  // namespace gradbus
