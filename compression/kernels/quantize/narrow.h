// Converts f32 to f32, f16 or bf16 bytes and back, for codecs that send every element. Rounding is
// that of common/kernels/half.h: nearest, ties to even. Pure; any thread.
#pragma once

#include <cstddef>

#include "common/dtype.h"

namespace gradbus {

// Writes `count` elements of `dtype` (kF32, kF16, kBF16) to `to`, which may be unaligned. With a
// residual: residual[i] = values[i] - the written value, unchanged where that is not finite.
void narrow(DType dtype, const float* values, size_t count, std::byte* to, float* residual);
void narrow_scalar(DType dtype, const float* values, size_t count, std::byte* to, float* residual);

// to = or += scale * element
void widen(DType dtype, const std::byte* from, size_t count, float scale, float* to, bool add);
void widen_scalar(DType dtype, const std::byte* from, size_t count, float scale, float* to,
                  bool add);

}  // namespace gradbus
