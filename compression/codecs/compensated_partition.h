// For codecs that select from a whole partition: v = gradient + decay * residual, read block by
// block in one pass. With a residual, v is left there, so later passes find v in one array.
//
// If any element is NaN or Inf, the residual must not change. But such an element may be found
// after part of v was written. Partitions of up to 1 Mi elements are checked first, because the
// second read comes from the cache. For larger partitions that would cost a fifth of the speed, so
// the write is undone: (v - gradient) / decay, which is the old residual except for one rounding.
#pragma once

#include <cstddef>
#include <span>

#include "compression/codec.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/kernels/select/collect.h"

namespace gradbus {

inline constexpr size_t kLookFirstElements = size_t{1} << 20;

// A block of up to kSelectElements from `first` on.
CollectBlock collect_block_of(const EncodeInput& input, size_t first);
// v[i], before it is written.
float compensated_element(const EncodeInput& input, size_t i);
// Returns the first element from `first` on whose v is not finite, before v is written. Returns the
// last element if there is none any more, because a trainer may write to a gradient that it has
// submitted.
size_t next_not_finite(const EncodeInput& input, size_t first);
// The value of an element that is not finite, after residual and momentum were restored.
float not_finite_element(const EncodeInput& input, size_t i);
// v as one array, after it was written.
std::span<const float> compensated_values(const EncodeInput& input);
// An input with the same v, after it was written, that needs no compensation.
EncodeInput compensated(const EncodeInput& input);

// The index of the first NaN or Inf of a gradient that is small enough to be checked first, or
// kAllFinite.
size_t look_first(const EncodeInput& input);
// Undoes the write of v to the first `count` elements.
void restore_residual(const EncodeInput& input, size_t count);

}  // namespace gradbus
