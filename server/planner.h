// How a tensor is cut into chunks, the unit of pipelining: decided once here, the same on every
// agent.
//
// Pure functions. The result r of plan_chunk_elements satisfies
//   * r >= 1, and r * element bytes <= kFramePayloadBytesMax;
//   * r is a multiple of 64 when the tensor has more than one chunk, so chunks start on cache
//   lines;
//   * an all-reduce between A agents of at least A * kOwnerBytesMin is cut so that the ring's
//   owners
//     (chunk c belongs to agent c % A) get equally many chunks: the ring ends when the busiest
//     does.
#pragma once

#include <cstdint>

#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

// Below this a chunk would cost more in headers and wake-ups than balance can win.
inline constexpr uint64_t kOwnerBytesMin = 16 << 10;

// `spec` is valid (dtype known, bytes <= kTensorBytesMax); agents >= 1; chunk_bytes is the target.
uint64_t plan_chunk_elements(const v1::TensorSpec& spec, uint32_t agents, uint64_t chunk_bytes);

}  // namespace gradbus
