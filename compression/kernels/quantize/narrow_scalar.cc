// The definition of narrow() and widen(). They also use it for the last elements.
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "common/check.h"
#include "common/kernels/half.h"
#include "compression/kernels/quantize/narrow.h"

namespace gradbus {
namespace {

struct F32Element {
  using Bits = uint32_t;
  static Bits narrow(float value) { return std::bit_cast<uint32_t>(value); }
  static float widen(Bits bits) { return std::bit_cast<float>(bits); }
};

struct F16Element {
  using Bits = uint16_t;
  static Bits narrow(float value) { return f16_from_f32(value); }
  static float widen(Bits bits) { return f32_from_f16(bits); }
};

struct Bf16Element {
  using Bits = uint16_t;
  static Bits narrow(float value) { return bf16_from_f32(value); }
  static float widen(Bits bits) { return f32_from_bf16(bits); }
};

template <class Element>
void narrow_elements(const float* values, size_t count, std::byte* to, float* residual) {
  for (size_t i = 0; i < count; ++i) {
    const typename Element::Bits bits = Element::narrow(values[i]);
    std::memcpy(to + i * sizeof(bits), &bits, sizeof(bits));
    const float lost = values[i] - Element::widen(bits);
    if (residual != nullptr && std::isfinite(lost)) residual[i] = lost;
  }
}

template <class Element>
void widen_elements(const std::byte* from, size_t count, float scale, float* to, bool add) {
  for (size_t i = 0; i < count; ++i) {
    typename Element::Bits bits;
    std::memcpy(&bits, from + i * sizeof(bits), sizeof(bits));
    const float value = Element::widen(bits) * scale;
    to[i] = add ? to[i] + value : value;
  }
}

}  // namespace

void narrow_scalar(DType dtype, const float* values, size_t count, std::byte* to, float* residual) {
  switch (dtype) {
    case DType::kF32: return narrow_elements<F32Element>(values, count, to, residual);
    case DType::kF16: return narrow_elements<F16Element>(values, count, to, residual);
    case DType::kBF16: return narrow_elements<Bf16Element>(values, count, to, residual);
    default: GRADBUS_CHECK(false);
  }
}

void widen_scalar(DType dtype, const std::byte* from, size_t count, float scale, float* to,
                  bool add) {
  switch (dtype) {
    case DType::kF32: return widen_elements<F32Element>(from, count, scale, to, add);
    case DType::kF16: return widen_elements<F16Element>(from, count, scale, to, add);
    case DType::kBF16: return widen_elements<Bf16Element>(from, count, scale, to, add);
    default: GRADBUS_CHECK(false);
  }
}

}  // namespace gradbus
