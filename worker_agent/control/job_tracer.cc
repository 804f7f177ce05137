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

}  // namespace

void JobTracer::add_rank(uint32_t rank, std::shared_ptr<Channel> channel) {
  ranks_.push_back({rank, std::move(channel)});
}

void JobTracer::set(bool on, Nanos now) {
  if (on && until_ == 0) {
    since_ = now;
    forget();
  }
  until_ = on ? now + kRenewedWithin : 0;
  engine_->set(on);
  for (const Rank& rank : ranks_)
    rank.channel->header().tracing.store(on ? 1 : 0, std::memory_order_relaxed);
}

// What came after the last take of an earlier trace.
void JobTracer::forget() {
  TraceSpan span;
  for (Rank& rank : ranks_) {
    for (uint32_t i = 0; i < kTraceRecords && !rank.corrupt; ++i) {
      const Pop popped = rank.channel->trace.pop(span);
      rank.corrupt = popped == Pop::kCorrupt;
      if (popped != Pop::kRecord) break;
    }
    rank.invalid = 0;
    rank.dropped_before = rank.channel->header().trace_dropped.load(std::memory_order_relaxed);
  }
  engine_->take(engine_spans_, engine_dropped_);
  engine_spans_.clear();
  engine_sent_ = 0;
  engine_dropped_ = 0;
}

void JobTracer::tick(Nanos now) {
  if (on() && now > until_) set(false, now);
}

bool JobTracer::is_valid(const TraceSpan& span, Nanos now) const {
  return span.kind >= 1 && span.kind <= kTraceKindMax && span.begin_ns <= span.end_ns &&
         span.end_ns >= static_cast<uint64_t>(since_) &&
         span.end_ns <= static_cast<uint64_t>(now + kSecond);
}

// A span that had begun before the trace is cut.
void JobTracer::add(const TraceSpan& span, v1::TraceTrack& track) const {
  v1::TraceSpan& added = *track.add_spans();
  added.set_kind(span.kind);
  added.set_begin_ns(std::max(span.begin_ns, static_cast<uint64_t>(since_)));
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

void JobTracer::take_rank(Rank& rank, v1::TraceTrack& track, Nanos now) {
  track.set_rank(static_cast<int32_t>(rank.rank));
  TraceSpan span;
  for (uint32_t taken = 0; taken < kTraceRecords && !rank.corrupt; ++taken) {
    const Pop popped = rank.channel->trace.pop(span);
    rank.corrupt = popped == Pop::kCorrupt;
    if (popped != Pop::kRecord) break;
    is_valid(span, now) ? add(span, track) : void(++rank.invalid);
  }
  track.set_dropped(rank.invalid +
                    rank.channel->header().trace_dropped.load(std::memory_order_relaxed) -
                    rank.dropped_before);
}

void JobTracer::take_engine(v1::TraceTrack& track) {
  if (engine_sent_ == engine_spans_.size()) {
    engine_->take(engine_spans_, engine_dropped_);
    engine_sent_ = 0;
  }
  track.set_rank(-1);
  track.set_dropped(engine_dropped_);
  for (uint32_t i = 0; i < kTraceRecords && engine_sent_ < engine_spans_.size(); ++i)
    add(engine_spans_[engine_sent_++], track);
}

std::vector<v1::TraceRecords> JobTracer::take(Nanos now) {
  std::vector<v1::TraceRecords> messages;
  for (size_t i = 0; i <= ranks_.size(); ++i) {
    v1::TraceRecords records;
    v1::TraceTrack& track = *records.add_tracks();
    i < ranks_.size() ? take_rank(ranks_[i], track, now) : take_engine(track);
    if (track.spans_size() == 0) continue;
    name_tensors(records);
    messages.push_back(std::move(records));
  }
  return messages;
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
