// What the engine did for a job while the job is traced. The engine writes spans, the conductor
// takes them and sends them to the coordinator (worker_agent/control/job_tracer.h).
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "proto/shm_layout.h"
#include "proto/trace.h"

namespace gradbus {

inline constexpr size_t kEngineSpansMax = 65'536;  // between two takes of the conductor

// Any thread. The lock is taken once per round and only while the job is traced.
class JobTrace {
 public:
  bool on() const { return on_.load(std::memory_order_relaxed); }
  // Reserves the memory, so that the engine allocates nothing.
  void set(bool on) {
    const std::lock_guard lock(lock_);
    if (on) spans_.reserve(kEngineSpansMax);
    on_.store(on, std::memory_order_relaxed);
  }
  void add(const TraceSpan& span) {
    const std::lock_guard lock(lock_);
    spans_.size() < spans_.capacity() ? spans_.push_back(span) : void(++dropped_);
  }
  // Replaces `spans` by those since the last call. `dropped` grows by those that found no room.
  void take(std::vector<TraceSpan>& spans, uint64_t& dropped) {
    spans.clear();
    if (on()) spans.reserve(kEngineSpansMax);
    const std::lock_guard lock(lock_);
    dropped += std::exchange(dropped_, 0);
    spans.swap(spans_);
  }

 private:
  std::atomic<bool> on_{false};
  std::mutex lock_;
  std::vector<TraceSpan> spans_;
  uint64_t dropped_ = 0;
};

// The spans of a tensor's current round. Engine thread only; written only while the job is traced.
class RoundTrace {
 public:
  explicit RoundTrace(const Clock& clock) : clock_(clock) {}

  Nanos now() const { return clock_.now(); }
  // A piece of work of this kind, or an event (begin == end). The span of a kind goes from its
  // first piece to its last one.
  void note(TraceKind kind, Nanos begin, Nanos end, uint64_t bytes = 0) {
    Span& span = of(kind);
    if (span.begin == 0) span.begin = begin;
    span.end = std::max(span.end, end);
    span.busy += end - begin;
    span.bytes += bytes;
  }
  void note(TraceKind kind, Nanos at, uint64_t bytes = 0) { note(kind, at, at, bytes); }

  // Writes the spans of the round that is over, and begins the next one.
  void finish(JobTrace& trace, uint32_t tensor, uint64_t round) {
    const Span& sent = of(TraceKind::kSend);
    const Span& received = of(TraceKind::kReceive);
    if (sent.begin != 0 && received.begin > sent.begin)
      note(TraceKind::kPeers, sent.begin, received.begin);
    for (uint32_t kind = 1; kind <= kTraceKindMax; ++kind) {
      const Span& span = spans_[kind];
      if (span.begin == 0) continue;
      trace.add({.kind = kind,
                 .tensor = tensor,
                 .begin_ns = static_cast<uint64_t>(span.begin),
                 .end_ns = static_cast<uint64_t>(span.end),
                 .round = {round, span.bytes, static_cast<uint64_t>(span.busy)}});
    }
    clear();
  }
  void clear() { spans_ = {}; }

 private:
  struct Span {
    Nanos begin = 0;  // 0: nothing yet
    Nanos end = 0;
    Nanos busy = 0;
    uint64_t bytes = 0;
  };
  Span& of(TraceKind kind) { return spans_[static_cast<size_t>(kind)]; }

  const Clock& clock_;
  std::array<Span, kTraceKindMax + 1> spans_{};
};

// Measures a piece of work, if the job is traced.
class TracedWork {
 public:
  // `round`: null when the job is not traced.
  TracedWork(RoundTrace* round, TraceKind kind, uint64_t bytes = 0)
      : round_(round), kind_(kind), bytes_(bytes), begin_(round == nullptr ? 0 : round->now()) {}
  ~TracedWork() {
    if (round_ != nullptr) round_->note(kind_, begin_, round_->now(), bytes_);
  }
  TracedWork(const TracedWork&) = delete;
  TracedWork& operator=(const TracedWork&) = delete;

 private:
  RoundTrace* const round_;
  const TraceKind kind_;
  const uint64_t bytes_;
  const Nanos begin_;
};

}  // namespace gradbus
