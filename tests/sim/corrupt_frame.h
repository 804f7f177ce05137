// Frames that a peer must never get away with: a good header with one field changed so that,
// whatever came before, the receiver can know that it is wrong.
#pragma once

#include "tests/sim/scenario.h"

namespace gradbus::sim {

// `plan` is the receiver's.
FrameHeader corrupt_frame(Random& random, const CollectivePlan& plan, const FrameHeader& good);

}  // namespace gradbus::sim
