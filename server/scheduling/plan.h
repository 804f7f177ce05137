// A plan: which bytes of which gradients are sent in which operation, in which order.
//
// Pure values; any thread. The first operation of a plan need not be the first one sent: an
// operation may start when its start condition holds, and of those the smallest priority goes
// first. Equal priorities go in the order in which they became ready.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/status.h"
#include "proto/numbers.h"
#include "server/scheduling/workload.h"

namespace gradbus::scheduling {

// Bytes [begin, begin + bytes) of the gradient of a layer.
struct Piece {
  uint32_t layer = 0;
  uint64_t begin = 0;
  uint64_t bytes = 0;
};

enum class Start : uint8_t {
  kGradients,    // when the gradients of all its pieces are ready
  kBackwardEnd,  // when the operation `after` is complete, and the backward pass has ended
};

struct Operation {
  CollectiveKind kind = CollectiveKind::kAllReduce;  // or reduce-scatter, or all-gather
  std::vector<Piece> pieces;
  int64_t priority = 0;  // the smallest goes first
  Start start = Start::kGradients;
  int32_t after = -1;       // index of an operation; all-gathers only
  bool compressed = false;  // with a codec of the cluster:
  uint32_t codec = 0;       // 0 is its `codec`, n is number n - 1 of its `more_codecs`

  uint64_t bytes() const;
};

struct Plan {
  std::string schedule;
  std::vector<Operation> operations;
  // When a layer's next forward pass may start: true, when its own gradients have arrived, so
  // parameters are stepped one by one; false, when all have.
  bool steps_per_layer = false;
  // An operation yields to more urgent ones after each chunk of this size; 0: never.
  uint64_t chunk_bytes = 0;
  // Bytes that may be committed to the network, where nothing overtakes; 0: one operation.
  uint64_t in_flight_bytes_max = 0;
  std::string why;  // one sentence for a person
};

// Whether the plan exchanges every byte of every gradient exactly once: one all-reduce, or one
// reduce-scatter and, after it, one all-gather of the same pieces. No operation is larger than the
// budget, and budget and interruption are not combined. GB-X001 says what is wrong: plans are ours.
Status validate(const Workload& workload, const Plan& plan);

}  // namespace gradbus::scheduling
