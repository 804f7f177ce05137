// The shared memory between this rank and its agent: two rings, a doorbell, counters and a trace.
// In a world of one it is not open, and its calls do nothing.
//
// Any thread. Submissions take a lock for a few instructions; completions are read by one thread at
// a time, and the caller sees to that.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "client_lib/src/trace_writer.h"
#include "common/clock.h"
#include "common/fd.h"
#include "common/segment.h"
#include "common/status.h"
#include "proto/shm_layout.h"
#include "shared_memory/ring.h"

namespace gradbus {

class RankChannel {
 public:
  // `doorbell`: the eventfd that wakes the agent. S212 or V801 for a segment of another layout.
  Status open(std::shared_ptr<Segment> segment, Fd doorbell);
  bool is_open() const { return segment_ != nullptr; }
  // What this rank does, while the job is traced.
  TraceWriter& trace() { return trace_; }

  // ---- counters, for `gradbus status` and the coordinator's rules
  void count_operation(uint64_t bytes);
  void count_step(uint64_t step);  // the highest one counts
  void count_loss(double loss);
  void count_wait(Nanos began, Nanos ended);
  // The time for which threads of this rank have slept until others had done their part.
  uint64_t waited_ns() const;

  // ---- rings
  // While the ring is full, a record that is `needed` waits for flush(); another one is dropped.
  // S210 when the agent's end of the ring is corrupt.
  Status submit(const Submission& record, bool needed);
  // Pushes the records that found the ring full.
  void flush();
  void ring_doorbell();
  bool pop(CompletionRecord& record) { return completions_.pop(record) == Pop::kRecord; }

 private:
  ChannelHeader& header() const { return *reinterpret_cast<ChannelHeader*>(segment_->at(0)); }

  std::shared_ptr<Segment> segment_;
  Fd doorbell_;
  TraceWriter trace_;
  std::mutex submission_lock_;
  std::vector<Submission> overflow_;  // in order: the ring was full
  RingProducer<Submission> submissions_;
  RingConsumer<CompletionRecord> completions_;
};

}  // namespace gradbus
