// The agent's end of one client's channel: its segment, its doorbell, its two rings.
//
// Created by the conductor; the rings belong to the engine thread from then on.
#pragma once

#include <memory>
#include <string>

#include "client_lib/shm/ring.h"
#include "common/fd.h"
#include "common/segment.h"
#include "common/status.h"
#include "proto/shm_layout.h"

namespace gradbus {

struct Channel {
  std::shared_ptr<Segment> segment;
  Fd doorbell;  // eventfd: the client writes, the engine reads
  RingConsumer<Submission> submissions;
  RingProducer<CompletionRecord> completions;

  ChannelHeader& header() const { return *reinterpret_cast<ChannelHeader*>(segment->at(0)); }
};

// A zeroed channel with its header written. S201 when there is no memory.
Result<std::shared_ptr<Channel>> create_channel(const std::string& name);

}  // namespace gradbus
