#include "server/coordinator/job_traces.h"

#include <algorithm>

namespace gradbus {
namespace {

constexpr Nanos kRenewEvery = kSecond;
// Agents send the last spans of a job before they know that it has ended.
constexpr Nanos kLastSpansWithin = kSecond / 2;
constexpr uint64_t kClockMax = uint64_t{1} << 61;  // 73 years; differences of differences fit

uint64_t spans_of(const v1::TraceRecords& records) {
  uint64_t spans = 0;
  for (const v1::TraceTrack& track : records.tracks())
    spans += static_cast<uint64_t>(track.spans_size());
  return spans;
}

}  // namespace

v1::TraceReply JobTraces::take(const v1::TraceRequest& request, const CoordinatorJob* job,
                               Nanos now) {
  v1::TraceReply reply;
  auto at = traces_.find(request.job());
  if (at == traces_.end()) {
    if (request.finish()) return reply;
    if (traces_.size() >= kTracesMax) {
      *reply.mutable_error() =
          to_proto(short_error("C506", "more than " + std::to_string(kTracesMax) +
                                           " traces at a time are not recorded"));
      return reply;
    }
    at = traces_.emplace(request.job(), Trace{request.caller().uid(), request.tool()}).first;
  }
  Trace& trace = at->second;
  if (trace.tool != request.tool()) {
    *reply.mutable_error() = to_proto(short_error(
        "C506", "job " + in_quotes(request.job()) + " is being traced by another program",
        "wait until that trace ends"));
    return reply;
  }
  if (trace.job_id == 0 && job != nullptr && job->state() == CoordinatorJob::State::kRunning)
    begin(trace, *job, now);
  trace.taken = now;
  if (request.finish() && trace.job_id != 0 && trace.ended_at == 0) tell(trace, false, now);
  for (v1::TraceRecords& part : trace.parts) *reply.add_parts() = std::move(part);
  trace.parts.clear();
  trace.bytes = 0;
  for (const Agent& agent : trace.agents) {
    v1::TracedAgent& traced = *reply.add_agents();
    traced.set_name(agent.name);
    traced.set_offset_ns(agent.offset);
    traced.set_error_ns(agent.error);
  }
  reply.set_dropped(trace.dropped);
  reply.set_start_ns(static_cast<uint64_t>(trace.start));
  const bool over = trace.ended_at != 0 && now - trace.ended_at >= kLastSpansWithin;
  reply.set_state(over                ? v1::TraceReply::ENDED
                  : trace.job_id != 0 ? v1::TraceReply::RUNNING
                                      : v1::TraceReply::WAITING);
  if (over || request.finish()) traces_.erase(at);
  return reply;
}

void JobTraces::started(const CoordinatorJob& job, Nanos now) {
  const auto at = traces_.find(job.identity().name);
  if (at == traces_.end() || at->second.job_id != 0) return;
  const uint32_t uid = at->second.uid;
  if (uid != 0 && uid != job.identity().owner.uid) {
    traces_.erase(at);  // the next call is refused with the owner's name
    return;
  }
  begin(at->second, job, now);
}

void JobTraces::begin(Trace& trace, const CoordinatorJob& job, Nanos now) {
  trace.job_id = job.identity().id;
  trace.start = now;
  // In the order of their ranks, as in the job.
  for (const auto& [rank, record] : job.membership().ranks()) {
    if (std::ranges::find(trace.agents, record.agent, &Agent::id) != trace.agents.end()) continue;
    trace.agents.push_back({record.agent, job.membership().agent_name(rank)});
  }
  tell(trace, true, now);
  trace.renewed = now;
}

void JobTraces::tell(const Trace& trace, bool on, Nanos now) {
  for (const Agent& agent : trace.agents) {
    v1::CoordinatorMessage message;
    v1::TraceJob& order = *message.mutable_trace_job();
    order.set_job_id(trace.job_id);
    order.set_on(on);
    order.set_coordinator_ns(static_cast<uint64_t>(now));
    outbox_->send(agent.id, std::move(message));
  }
}

// The fastest round trip has the smallest error: the answer was sent between both times.
bool JobTraces::receive(uint64_t agent, const v1::TraceRecords& records, Nanos now) {
  const auto of_job = [&](const auto& entry) { return entry.second.job_id == records.job_id(); };
  const auto at = std::ranges::find_if(traces_, of_job);
  if (at == traces_.end()) return true;
  Trace& trace = at->second;
  const auto from = std::ranges::find(trace.agents, agent, &Agent::id);
  if (from == trace.agents.end()) return false;
  if (std::max(records.coordinator_ns(), records.agent_ns()) > kClockMax) return false;
  if (records.coordinator_ns() != 0) {
    const auto sent = static_cast<Nanos>(records.coordinator_ns());
    if (sent > now || now - sent > 60 * kSecond) return false;
    const auto error = static_cast<uint64_t>((now - sent) / 2 + 1);
    const int64_t offset =
        static_cast<int64_t>(records.agent_ns()) - static_cast<int64_t>(sent + (now - sent) / 2);
    // The coordinator's clock stops while it is suspended. Then the offset is another one.
    const bool jumped =
        static_cast<uint64_t>(std::abs(offset - from->offset)) > error + from->error;
    if (from->error == 0 || error < from->error || jumped) {
      from->error = error;
      from->offset = offset;
    }
  }
  const auto index = static_cast<uint32_t>(from - trace.agents.begin());
  timelines_.add(records, index, from->name, from->offset, now);
  const size_t bytes = records.SpaceUsedLong();  // a span is far smaller on the wire
  if (trace.bytes + bytes > kTraceBytesMax) {
    trace.dropped += spans_of(records);
    return true;
  }
  trace.bytes += bytes;
  v1::TraceRecords& part = trace.parts.emplace_back(records);
  part.set_agent_index(index);
  return true;
}

void JobTraces::renew(Nanos now) {
  for (auto entry = traces_.begin(); entry != traces_.end();) {
    const auto current = entry++;
    Trace& trace = current->second;
    const bool live = trace.job_id != 0 && trace.ended_at == 0;
    const bool forgotten = now - trace.taken > kTakenWithin;
    if (live && (forgotten || now - trace.renewed >= kRenewEvery)) {
      tell(trace, !forgotten, now);
      trace.renewed = now;
    }
    if (forgotten) traces_.erase(current);
  }
}

}  // namespace gradbus
