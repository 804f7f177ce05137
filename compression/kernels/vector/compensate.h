// The first step of every encoder: it computes v = gradient + decay * residual block by block. The
// next steps read v from the first-level cache, so memory is read once. Any thread.
//
// An encoder is a loop over blocks: compensate(), encode the block, write the encoding error to the
// residual.
#pragma once

#include <cstddef>

#include "compression/codec.h"

namespace gradbus {

inline constexpr size_t kBlockElements = 2048;  // 8 KiB: v and its residual fit 32 KiB of L1

// Computes `count` elements of v from `first` on, at most kBlockElements. They are in `scratch`, or
// in the gradient itself if there is no residual.
const float* compensate(const EncodeInput& input, size_t first, size_t count, float* scratch);

// The same with prefetches 1024 elements ahead, for callers that make one pass and do not prefetch.
const float* compensate_ahead(const EncodeInput& input, size_t first, size_t count, float* scratch);

// Returns the index of the first NaN or Inf of `values`, or `count`.
size_t first_not_finite(const float* values, size_t count);

}  // namespace gradbus
