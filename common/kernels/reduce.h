// Element-wise reduction of equal-length vectors: the operation behind every dense collective.
//
// Vectors are unaligned byte pointers to `count` elements each. Sources may be targets (in place)
// but must not overlap otherwise. Pure and thread-safe, without allocation. The SIMD target is
// chosen at run time (Highway).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/dtype.h"
#include "common/reduce_op.h"

namespace gradbus {

struct Reduction {
  ReduceOp op = ReduceOp::kSum;  // kAverage is a sum with a `divisor`. Not kNone, kAdasum
  uint32_t divisor = 1;          // of the result
  double prescale = 1;           // floats: each source is multiplied by this before the reduction
  double postscale = 1;          // floats: the result is multiplied by this

  bool copies() const {
    return divisor == 1 && prescale == 1 && postscale == 1;
  }  // with one source
};

// every target[i] = op over s of (prescale * source[s][i]), times postscale, divided by divisor
//
// Sources are combined in the given order, and each target gets the same bits. f16 and bf16 are
// combined in f32 and rounded once, to nearest even. Floats are multiplied by one factor, after /
// divisor, rounded to the type in which they are combined. Integer division truncates toward zero;
// integers ignore `prescale` and `postscale`; integer sums and products wrap. One pass reads
// sources * count elements and writes targets * count. Needs at least one source and one target.
void reduce(DType dtype, const Reduction& reduction, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, size_t count);

// The definition of reduce(), one element at a time. Tests compare with it.
void reduce_scalar(DType dtype, const Reduction& reduction,
                   std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
                   size_t count);

}  // namespace gradbus
