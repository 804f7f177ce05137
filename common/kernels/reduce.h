// Element-wise reduction of equal-length vectors: the one verb of every dense collective.
//
// Vectors are unaligned byte pointers; `count` elements each. Sources may be targets (in place) but
// must not overlap otherwise. Pure, thread-safe, no allocation; SIMD chosen at run time (Highway).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/dtype.h"
#include "common/reduce_op.h"

namespace gradbus {

struct Reduction {
  ReduceOp op =
      ReduceOp::kSum;    // kAverage is a sum here: `divisor` says the rest. Not kNone, kAdasum
  uint32_t divisor = 1;  // of the result
  double before = 1;     // floats: each source is multiplied by this first
  double after = 1;      // floats: the result is multiplied by this

  bool copies() const { return divisor == 1 && before == 1 && after == 1; }  // one source
};

// every target[i] = op over s of (before * source[s][i]), times after, divided by divisor
//
// Sources are combined in the order given, each target gets the same bits. f16 and bf16 are
// combined in f32 and rounded once, to nearest even. Floats are multiplied by one factor,
// after / divisor, rounded to the type they are combined in; integers are divided truncating toward
// zero and ignore `before` and `after`; integer sums and products wrap. One pass: reads
// sources * count, writes targets * count elements. Needs one source and one target at least.
void reduce(DType dtype, const Reduction& reduction, std::span<const std::byte* const> sources,
            std::span<std::byte* const> targets, size_t count);

// The definition of right: the same, one element at a time. Used by tests.
void reduce_scalar(DType dtype, const Reduction& reduction,
                   std::span<const std::byte* const> sources, std::span<std::byte* const> targets,
                   size_t count);

}  // namespace gradbus
