// For codecs that choose over a whole unit: v = gradient + decay * residual, read block by block in
// one pass, and with a residual left there, so that later passes and the values that are sent find
// it in one array.
//
// A NaN or Inf anywhere in the unit means that the residual must be as before, but it turns up when
// part of v is written. Units of up to 1 Mi elements are looked at first, as the second read comes
// from the cache. For larger ones that would cost a fifth of the speed, so what was written is
// undone: (v - gradient) / decay, the old residual but for one rounding.
#pragma once

#include <cstddef>
#include <span>

#include "compression/codec.h"
#include "compression/codecs/sparse_payload.h"
#include "compression/kernels/collect.h"

namespace gradbus {

inline constexpr size_t kLookFirstElements = size_t{1} << 20;

// Up to kSelectElements from `first` on.
CollectBlock collect_block_of(const EncodeInput& input, size_t first);
// v[i], before it is written.
float compensated_element(const EncodeInput& input, size_t i);
// The first element from `first` on whose v is not finite, before it is written. The last one when
// there is none any more: a trainer may write to a gradient that it has given away.
size_t next_not_finite(const EncodeInput& input, size_t first);
// Of an element that is not finite, after the memories were put in order.
float not_finite_element(const EncodeInput& input, size_t i);
// v as one array, after it was written.
std::span<const float> compensated_values(const EncodeInput& input);
// The same v, after it was written, where nothing is left to compensate.
EncodeInput compensated(const EncodeInput& input);

// The index of the first NaN or Inf of a gradient that is worth looking at first, or kAllFinite.
size_t look_first(const EncodeInput& input);
// Undoes the writing of the first `count` elements.
void restore_residual(const EncodeInput& input, size_t count);

}  // namespace gradbus
