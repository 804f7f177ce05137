#include "worker_agent/control/job_tracer.h"

#include <algorithm>
#include <set>

namespace gradbus {
namespace {

constexpr Nanos kRenewedWithin = 5 * kSecond;

// What a rank wrote, as text that every reader takes.
std::string clean_name(const char (&name)[sizeof(TraceSpan::name)]) {
  std::string text(name, strnlen(name, sizeof(name)));
  std::ranges::replace_if(
      text, [](char c) { return c < ' ' || c > '~'; }, '?');
  return text;
}

bool is_valid(const TraceSpan& span) {
  return span.kind >= 1 && span.kind <= kTraceKindMax && span.begin_ns <= span.end_ns;
}

void add(const TraceSpan& span, v1::TraceTrack& track) {
  v1::TraceSpan& added = *track.add_spans();
  added.set_kind(span.kind);
  added.set_begin_ns(span.begin_ns);
  added.set_end_ns(span.end_ns);
  if (span.tensor == 0) {
    added.set_name(clean_name(span.name));
    return;
  }
  added.set_tensor(span.tensor);
  added.set_round(span.round.number);
  added.set_bytes(span.round.bytes);
  added.set_busy_ns(span.round.busy_ns);
}

}  // namespace

void JobTracer::add_rank(uint32_t rank, std::shared_ptr<Channel> channel) {
  ranks_.push_back({rank, std::move(channel)});
}

void JobTracer::set(bool on, Nanos now) {
  until_ = on ? now + kRenewedWithin : 0;
  engine_->set(on);
  for (const Rank& rank : ranks_)
    rank.channel->header().tracing.store(on ? 1 : 0, std::memory_order_relaxed);
}

void JobTracer::tick(Nanos now) {
  if (on() && now > until_) set(false, now);
}

size_t JobTracer::take_rank(Rank& rank, v1::TraceTrack& track, size_t spans_max) {
  track.set_rank(static_cast<int32_t>(rank.rank));
  TraceSpan span;
  size_t taken = 0;
  while (!rank.corrupt && taken < spans_max) {
    const Pop popped = rank.channel->trace.pop(span);
    rank.corrupt = popped == Pop::kCorrupt;
    if (popped != Pop::kRecord) break;
    ++taken;
    is_valid(span) ? add(span, track) : void(++rank.invalid);
  }
  track.set_dropped(rank.invalid +
                    rank.channel->header().trace_dropped.load(std::memory_order_relaxed));
  return taken;
}

size_t JobTracer::take(v1::TraceRecords& records, size_t spans_max) {
  size_t taken = 0;
  for (Rank& rank : ranks_) taken += take_rank(rank, *records.add_tracks(), spans_max - taken);
  if (left_.empty()) left_ = engine_->take(engine_dropped_);
  v1::TraceTrack& track = *records.add_tracks();
  track.set_rank(-1);
  track.set_dropped(engine_dropped_);
  const size_t count = std::min(left_.size(), spans_max - taken);
  for (size_t i = 0; i < count; ++i) add(left_[i], track);
  left_.erase(left_.begin(), left_.begin() + static_cast<ptrdiff_t>(count));
  name_tensors(records);
  return taken + count;
}

void JobTracer::name_tensors(v1::TraceRecords& records) const {
  std::set<uint32_t> ids;
  for (const v1::TraceTrack& track : records.tracks())
    for (const v1::TraceSpan& span : track.spans())
      if (span.tensor() != 0) ids.insert(span.tensor());
  for (const uint32_t id : ids) {
    const std::string name = name_of_(id);
    if (name.empty()) continue;
    v1::TracedTensor& tensor = *records.add_tensors();
    tensor.set_id(id);
    tensor.set_name(name);
  }
}

}  // namespace gradbus
