// Element-wise reduction of equal-length vectors: the one verb of every dense collective.
//
// Vectors are unaligned byte pointers; `count` elements each. Sources may be targets (in place) but
// must not overlap otherwise. Pure, thread-safe, no allocation; SIMD chosen at run time (Highway).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/dtype.h"

namespace gradbus {

// every target[i] = (sum over s of source[s][i]) / divisor
//
// Sources are added in the order given, each target gets the same bits. f16 and bf16 are summed in
// f32 and rounded once, to nearest even. divisor 1 leaves the sum; floats are multiplied by
// 1/divisor, integers divided truncating toward zero; integer sums wrap. One pass: reads
// sources * count, writes targets * count elements. Needs one source and one target at least.
void reduce(DType dtype, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, size_t count, uint32_t divisor);

// The definition of right: the same, one element at a time. Used by tests.
void reduce_scalar(DType dtype, std::span<const std::byte* const> sources,
                   std::span<std::byte* const> targets, size_t count, uint32_t divisor);

}  // namespace gradbus
