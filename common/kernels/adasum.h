// Adasum: gradients added so that what they agree on counts once (Maleki et al. 2020, "Scaling
// distributed training with adaptive summation"). Orthogonal vectors are summed, equal ones
// averaged.
//
// Pure, thread-safe, no allocation. The result depends on the values only, not on the processor:
// products and sums are f64, and their order is fixed (reduce_targets.h). Vectors are unaligned
// byte pointers to `count` floats; f16 and bf16 are allowed.
#pragma once

#include <cstddef>
#include <span>

#include "common/dtype.h"

namespace gradbus {

// target = (1 - dot / (2 |a|^2)) a + (1 - dot / (2 |b|^2)) b, dot = a . b
//
// A vector whose norm is zero gets the factor 1. Two passes over a and b, of which `target` may be
// either. NaN, Inf, or f64 squares that overflow give NaN.
void adasum_pair(DType dtype, const std::byte* a, const std::byte* b, std::byte* target,
                 size_t count);

// What adasum() needs: nothing up to two sources, else the whole part of log2(sources) vectors.
size_t adasum_scratch_bytes(DType dtype, size_t source_count, size_t count);

// Combines all sources in a binary tree: the pairs (0, 1), (2, 3), ..., then pairs of results,
// until one is left; an odd one passes up unchanged. Each result is rounded to the dtype. `target`
// may be any of the sources; the other sources stay as they are. At least one source.
//
// Horovod (common/ops/adasum/adasum.h) pairs ranks at distance 1, 2, 4, ...: for a power of two
// this very tree, and it refuses other numbers. Its pairs differ in three ways: f32 products are
// rounded to f32 before they are added in f64, the order of the sum follows from how ranks split
// the vector, and a squared norm below 1e-8 counts as zero.
void adasum(DType dtype, std::span<const std::byte* const> sources, std::byte* target, size_t count,
            std::span<std::byte> scratch);

}  // namespace gradbus
