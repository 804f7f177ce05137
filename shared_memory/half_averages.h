// Sums of f16 between nodes. The maximum of f16 is 65504, so a sum over nodes could overflow
// although the mean does not. A result is the sum divided by the world size and multiplied by a
// factor below 1. Both are therefore applied to each node's sum, in f32, before it is rounded to
// f16 and sent. Then no partial sum exceeds the largest element of any rank, except for rounding: a
// mean above 65400 may still overflow.
//
// The cost is precision of small elements. A node's share below 2^-14, f16's smallest normal
// number, is rounded to a multiple of 2^-24. So a mean is off by up to 2^-25 for each node. A mean
// of at least 2^-14 times the number of nodes loses nothing. A later division would instead lose
// every mean above 65504 / world size. (NCCL's average multiplies each rank's input in the same
// way.)
//
// Other types have a sufficient range, and keep their single multiplication at the end.
#pragma once

#include <cstdint>

#include "common/kernels/reduce.h"
#include "shared_memory/tensor_spec.h"

namespace gradbus {

// The operation of a node on its ranks' elements, without spec.prescale. Its result is sent.
Reduction node_reduction(const TensorSpec& spec, uint32_t world_size);
// The operation on the sum of all nodes, for agents and shards.
Reduction reduction_after_nodes(const TensorSpec& spec, uint32_t world_size);

}  // namespace gradbus
