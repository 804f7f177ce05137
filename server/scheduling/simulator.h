// Simulates training steps under a plan, until they repeat: how long a step takes, and how much of
// its communication the computation does not hide.
//
// Pure, deterministic; any thread. Events, not ticks: each operation has a closed-form duration, so
// the number of nodes does not matter. Three streams, each of which does one thing at a time:
//
//   compute   forward 0, 1, ... | backward in order | forward 0 ...
//   codec     encodes and decodes (the agent's engine); a codec may use `compute` instead
//   link      operations, the most urgent one first
//
// A gradient's operation is released when its last piece is ready. It is encoded, sent, decoded.
// Then the layers that it completes may run their next forward pass (Plan::steps_per_layer).
#pragma once

#include <cstdint>
#include <vector>

#include "server/scheduling/codec_cost.h"
#include "server/scheduling/network.h"
#include "server/scheduling/plan.h"
#include "server/scheduling/workload.h"

namespace gradbus::scheduling {

// What a plan is made for.
struct Cluster {
  Network network;
  CodecCost codec;
  std::vector<CodecCost> more_codecs = {};  // of operations that name one
};

enum class Stream : uint8_t { kCompute, kCodec, kLink };
enum class Activity : uint8_t { kForward, kBackward, kEncode, kDecode, kExchange };

struct Interval {
  Stream stream = Stream::kCompute;
  Activity activity = Activity::kForward;
  uint32_t index = 0;  // of the layer (forward, backward), else of the operation
  double begin_us = 0;
  double end_us = 0;
};

struct StepTimes {
  double iteration_us = 0;
  double compute_us = 0;  // forward and backward: what one node alone would take
  double exposed_us = 0;  // in which nothing is computed, nor coded on the compute stream
  double coding_us = 0;   // on the compute stream
  double link_us = 0;     // in which the link is busy
  uint64_t in_flight_bytes_max = 0;
  std::vector<Interval> timeline;  // of the last step, from the start of its forward pass

  double efficiency() const { return compute_us / iteration_us; }
};

// How long an operation takes on each stream.
struct OperationTimes {
  double encode_us = 0;
  double exchange_us = 0;
  double decode_us = 0;
};
OperationTimes operation_times(const Operation& operation, const Cluster& cluster);

// `plan` is valid for `workload`.
StepTimes simulate(const Workload& workload, const Plan& plan, const Cluster& cluster);

}  // namespace gradbus::scheduling
