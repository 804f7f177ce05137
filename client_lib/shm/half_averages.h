// Sums of f16 between nodes. f16 ends at 65504, so a sum of several nodes would overflow where its
// mean does not. What makes a result of the sum, the division by the world size and a factor below
// 1, is therefore done to each node's sum, in f32, before that is rounded to f16 and sent. No
// partial sum is then larger than the largest element that a rank has brought, but for rounding: a
// mean above 65400 may still overflow.
//
// The price is paid by small elements: a node's share below 2^-14, f16's smallest normal number, is
// rounded to a multiple of 2^-24, so a mean is off by up to 2^-25 for each node. A mean that is not
// below 2^-14 times the number of nodes loses nothing. A later division would instead lose every
// mean above 65504 / world size. (NCCL's average multiplies each rank's input in the same way.)
//
// Other types have the range, and keep their one multiplication at the end.
#pragma once

#include <cstdint>

#include "client_lib/shm/tensor_spec.h"
#include "common/kernels/reduce.h"

namespace gradbus {

// What a node does to its ranks' elements, without spec.before; then its sum is sent.
Reduction node_reduction(const TensorSpec& spec, uint32_t world_size);
// What is done to the sum of all nodes' sums, by agents and shards alike.
Reduction reduction_after_nodes(const TensorSpec& spec, uint32_t world_size);

}  // namespace gradbus
