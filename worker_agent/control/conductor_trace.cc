// The part of the conductor that sends traces of jobs to the coordinator.
#include <utility>

#include "worker_agent/control/conductor.h"

namespace gradbus {
namespace {

constexpr Nanos kSendEvery = 50 * kMillisecond;
// A coordinator that reads slowly gets no more: spans stay where they are, and are dropped there.
constexpr size_t kUnsentMax = 64;

}  // namespace

// Answered at once, so that the coordinator can find the offset of this node's clock.
void Conductor::on_trace_job(const v1::TraceJob& message) {
  WorkerControlJob* const traced = job(message.job_id());
  if (traced == nullptr) return;
  if (!message.on()) send_trace(*traced);
  traced->tracer().set(message.on(), monotonic_now());
  if (message.on()) send_trace(*traced, message.coordinator_ns());
}

void Conductor::send_traces(Nanos now) {
  if (now < next_traces_) return;
  next_traces_ = now + kSendEvery;
  for (const auto& [id, running] : jobs_) {
    if (!running->tracer().on()) continue;
    send_trace(*running);
    running->tracer().tick(now);
  }
}

void Conductor::send_trace(WorkerControlJob& job, uint64_t coordinator_ns) {
  if (!job.tracer().on() || !connected_ || control_.unsent() > kUnsentMax) return;
  const Nanos now = monotonic_now();
  std::vector<v1::TraceRecords> parts = job.tracer().take(now);
  if (parts.empty() && coordinator_ns != 0) parts.emplace_back();
  for (v1::TraceRecords& part : parts) {
    part.set_job_id(job.id());
    part.set_coordinator_ns(std::exchange(coordinator_ns, 0));
    part.set_agent_ns(static_cast<uint64_t>(now));
    v1::AgentMessage message;
    *message.mutable_trace_records() = std::move(part);
    send(message);
  }
}

}  // namespace gradbus
