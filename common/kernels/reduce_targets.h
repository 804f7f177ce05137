// The kernels, compiled for different instruction sets. reduce() and adasum() use the first target.
// Tests compare every target with the scalar one. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/dtype.h"
#include "common/kernels/reduce.h"

namespace gradbus {

// reduce() with plain arguments. Needs at least one source and one target and divisor > 0. The
// operation must fit the dtype.
using ReduceKernel = void (*)(DType dtype, const Reduction& reduction,
                              const std::byte* const* sources, size_t source_count,
                              std::byte* const* targets, size_t target_count, size_t count);

// The two passes of Adasum over a pair of float vectors, whose elements are converted to f64.
//
// dots:  `sums` are kAdasumLanes of a*b, then of a*a, then of b*b; element i is added to lane
//        i % kAdasumLanes, in the order of i, product and sum each rounded.
// blend: target = a_factor * a + b_factor * b, each operation rounded, and the result once more
//        to f32 (f16 and bf16: from there to theirs); a NaN becomes the plain quiet one.
constexpr size_t kAdasumLanes = 8;
using DotsKernel = void (*)(DType dtype, const std::byte* a, const std::byte* b, size_t count,
                            double* sums);
using BlendKernel = void (*)(DType dtype, const std::byte* a, double a_factor, const std::byte* b,
                             double b_factor, std::byte* target, size_t count);

struct ReduceTarget {
  std::string_view name;  // "avx512", "avx2", "sse4", ..., "scalar"
  ReduceKernel run;
  DotsKernel dots;
  BlendKernel blend;
};

// The targets that this processor can run, fastest first; "scalar" is always last.
std::span<const ReduceTarget> reduce_targets();

// The functions of the scalar target: reduce_scalar() as a kernel, and the passes of Adasum
// (adasum.cc).
void reduce_one_by_one(DType dtype, const Reduction& reduction, const std::byte* const* sources,
                       size_t source_count, std::byte* const* targets, size_t target_count,
                       size_t count);
void adasum_dots_scalar(DType dtype, const std::byte* a, const std::byte* b, size_t count,
                        double* sums);
void adasum_blend_scalar(DType dtype, const std::byte* a, double a_factor, const std::byte* b,
                         double b_factor, std::byte* target, size_t count);

// adasum_pair() on one target. All targets give the same bits.
void adasum_pair_on(const ReduceTarget& by, DType dtype, const std::byte* a, const std::byte* b,
                    std::byte* target, size_t count);

}  // namespace gradbus
