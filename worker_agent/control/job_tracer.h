// The trace of one job on this node: turns it on and off, and collects the spans of the node's
// ranks and of the engine for the coordinator.
//
// Conductor thread only. What ranks write is not trusted: a span that no valid client writes is
// dropped, and a rank whose ring is invalid is not read any more. A turn takes at most one ring of
// each rank.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "gradbus/v1/coordinator.pb.h"
#include "worker_agent/job/channel.h"
#include "worker_agent/job/job_trace.h"

namespace gradbus {

class JobTracer {
 public:
  // The name of a tensor; "" when it is not known (any more).
  using NameOf = std::function<std::string(uint32_t tensor)>;

  JobTracer(std::shared_ptr<JobTrace> engine, NameOf name_of)
      : engine_(std::move(engine)), name_of_(std::move(name_of)) {}
  // By local rank.
  void add_rank(uint32_t rank, std::shared_ptr<Channel> channel);

  // A TraceJob of the coordinator; the trace ends when no other one comes within 5 s. What was
  // recorded before a trace begins is forgotten.
  void set(bool on, Nanos now);
  bool on() const { return until_ != 0; }
  // What was recorded since the last call, in messages without the job's id: one for each rank and
  // one for the engine, of at most kTraceRecords spans, if they have any.
  std::vector<v1::TraceRecords> take(Nanos now);
  // Ends a trace that was not renewed.
  void tick(Nanos now);

 private:
  struct Rank {
    uint32_t rank = 0;
    std::shared_ptr<Channel> channel;
    uint64_t invalid = 0;         // spans that were dropped here
    uint64_t dropped_before = 0;  // by the rank, in earlier traces
    bool corrupt = false;
  };
  void forget();
  bool is_valid(const TraceSpan& span, Nanos now) const;
  void take_rank(Rank& rank, v1::TraceTrack& track, Nanos now);
  void take_engine(v1::TraceTrack& track);
  void add(const TraceSpan& span, v1::TraceTrack& track) const;
  void name_tensors(v1::TraceRecords& records) const;

  const std::shared_ptr<JobTrace> engine_;
  const NameOf name_of_;
  std::vector<Rank> ranks_;
  std::vector<TraceSpan> engine_spans_;  // taken
  size_t engine_sent_ = 0;               // of them
  uint64_t engine_dropped_ = 0;
  Nanos until_ = 0;  // 0: off
  Nanos since_ = 0;  // the begin of the trace
};

}  // namespace gradbus
