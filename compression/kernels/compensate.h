// The start of every encoder: the vector v = gradient + decay * residual, a block at a time, so
// that what follows reads it from the first-level cache and memory is read once. Any thread.
//
// An encoder is a loop over blocks: compensate(), encode the block, write what the payload lacks
// to the block of the residual.
#pragma once

#include <cstddef>

#include "compression/codec.h"

namespace gradbus {

inline constexpr size_t kBlockElements = 2048;  // 8 KiB: v and its residual fit 32 KiB of L1

// `count` elements of v from `first` on, at most kBlockElements: in `scratch`, or in the gradient
// itself where there is no residual to add.
const float* compensate(const EncodeInput& input, size_t first, size_t count, float* scratch);

// The same for who makes one pass and calls no memory up: this does, 1024 elements ahead.
const float* compensate_ahead(const EncodeInput& input, size_t first, size_t count, float* scratch);

// The index of the first NaN or Inf of `values`, or `count`.
size_t first_not_finite(const float* values, size_t count);

}  // namespace gradbus
