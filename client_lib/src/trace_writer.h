// What this rank does, written for the agent while the job is traced (proto/trace.h).
//
// Any thread. While the job is not traced, a call costs one load.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <string_view>

#include "common/clock.h"
#include "proto/shm_layout.h"
#include "proto/trace.h"
#include "shared_memory/ring.h"

namespace gradbus {

class TraceWriter {
 public:
  // `channel`: the memory of a channel, which outlives the writer. Without it nothing is traced.
  void attach(std::byte* channel) {
    header_ = reinterpret_cast<ChannelHeader*>(channel);
    ring_ = RingProducer<TraceSpan, kTraceRecords>(RingMemory::at(channel + kTraceRingOffset));
  }

  bool on() const {
    return header_ != nullptr && header_->tracing.load(std::memory_order_relaxed) != 0;
  }
  // A time for add(): 0 while the job is not traced.
  Nanos now() const { return on() ? monotonic_now() : 0; }

  // A span of a tensor's round. Nothing if `begin` is 0: it began before the trace.
  void add(TraceKind kind, uint32_t tensor, uint64_t round, Nanos begin, Nanos end,
           uint64_t bytes = 0) {
    if (begin == 0 || !on()) return;
    push({.kind = static_cast<uint32_t>(kind),
          .tensor = tensor,
          .begin_ns = static_cast<uint64_t>(begin),
          .end_ns = static_cast<uint64_t>(end),
          .round = {round, bytes, 0}});
  }
  // A span that has a name instead of a tensor. A long name loses its beginning.
  void add(TraceKind kind, std::string_view name, Nanos begin, Nanos end) {
    if (begin == 0 || end < begin || !on()) return;
    TraceSpan span{.kind = static_cast<uint32_t>(kind),
                   .tensor = 0,
                   .begin_ns = static_cast<uint64_t>(begin),
                   .end_ns = static_cast<uint64_t>(end),
                   .name = {}};
    const size_t bytes = std::min(name.size(), sizeof(span.name));
    std::memcpy(span.name, name.data() + (name.size() - bytes), bytes);
    push(span);
  }

 private:
  void push(const TraceSpan& span) {
    const std::lock_guard lock(lock_);
    if (ring_.push(span) != Push::kDone)
      header_->trace_dropped.fetch_add(1, std::memory_order_relaxed);
  }

  ChannelHeader* header_ = nullptr;  // null: a world of one
  std::mutex lock_;
  RingProducer<TraceSpan, kTraceRecords> ring_;
};

}  // namespace gradbus
