// Adasum adds gradients so that their common part counts once (Maleki et al. 2020, "Scaling
// distributed training with adaptive summation"). Orthogonal vectors are summed, equal ones
// averaged.
//
// Pure, thread-safe, no allocation. The result does not depend on the processor: products and sums
// are f64 in a fixed order (reduce_targets.h). Vectors are unaligned byte pointers to `count`
// floats; f16 and bf16 are allowed.
#pragma once

#include <cstddef>
#include <span>

#include "common/dtype.h"

namespace gradbus {

// target = (1 - dot / (2 |a|^2)) a + (1 - dot / (2 |b|^2)) b, dot = a . b
//
// A vector whose norm is zero gets the factor 1. Makes two passes over a and b. `target` may be a
// or b. NaN, Inf, or f64 squares that overflow give NaN.
void adasum_pair(DType dtype, const std::byte* a, const std::byte* b, std::byte* target,
                 size_t count);

// The scratch memory of adasum(): none for up to two sources, else the integer part of
// log2(sources) vectors.
size_t adasum_scratch_bytes(DType dtype, size_t source_count, size_t count);

// Combines all sources in a binary tree. It combines the pairs (0, 1), (2, 3), ..., then pairs of
// results, until one is left. An odd one passes up unchanged. Each result is rounded to the dtype.
// `target` may be any of the sources; the other sources do not change. Needs at least one source.
//
// Horovod (common/ops/adasum/adasum.h) pairs ranks at distance 1, 2, 4, ... For a power of two that
// is the same tree; other numbers are not allowed there. Its pairs differ in three ways. It rounds
// f32 products to f32 before it adds them in f64. Its order of additions depends on how ranks split
// the vector. It treats a squared norm below 1e-8 as zero.
void adasum(DType dtype, std::span<const std::byte* const> sources, std::byte* target, size_t count,
            std::span<std::byte> scratch);

}  // namespace gradbus
