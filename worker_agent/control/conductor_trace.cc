// The part of the conductor that sends traces of jobs to the coordinator.
#include "worker_agent/control/conductor.h"

namespace gradbus {
namespace {

constexpr size_t kSpansPerMessage = 8'192;
constexpr size_t kMessagesPerTurn = 16;  // more than ranks and engine record in a turn

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
  for (const auto& [id, running] : jobs_) {
    if (!running->tracer().on()) continue;
    send_trace(*running);
    running->tracer().tick(now);
  }
}

void Conductor::send_trace(WorkerControlJob& job, uint64_t coordinator_ns) {
  if (!job.tracer().on() || !connected_) return;
  for (size_t part = 0; part < kMessagesPerTurn; ++part) {
    v1::AgentMessage message;
    v1::TraceRecords& records = *message.mutable_trace_records();
    records.set_job_id(job.id());
    const size_t spans = job.tracer().take(records, kSpansPerMessage);
    if (spans == 0 && coordinator_ns == 0) return;
    records.set_coordinator_ns(coordinator_ns);
    records.set_agent_ns(static_cast<uint64_t>(monotonic_now()));
    send(message);
    if (spans < kSpansPerMessage) return;
    coordinator_ns = 0;
  }
}

}  // namespace gradbus
