// The agent's end of one client's channel: its segment, its doorbell, its rings.
//
// The conductor creates it; then the rings belong to the engine thread, but for the trace.
#pragma once

#include <memory>
#include <string>

#include "common/fd.h"
#include "common/segment.h"
#include "common/status.h"
#include "proto/shm_layout.h"
#include "shared_memory/ring.h"

namespace gradbus {

struct Channel {
  std::shared_ptr<Segment> segment;
  // Eventfd that clients and GPUs write; the engine watches its edges and never reads it.
  Fd doorbell;
  RingConsumer<Submission> submissions;
  RingProducer<CompletionRecord> completions;
  RingConsumer<TraceSpan, kTraceRecords> trace;  // the conductor's

  ChannelHeader& header() const { return *reinterpret_cast<ChannelHeader*>(segment->at(0)); }
};

// Creates a zeroed channel with its header. S201 when there is no memory.
Result<std::shared_ptr<Channel>> create_channel(const std::string& name);

}  // namespace gradbus
