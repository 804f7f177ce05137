// Converts f16 and bf16 to and from f32, one element at a time. The SIMD forms must give the same
// results.
//
// Narrowing rounds to nearest, ties to even. Values that are too large become Inf. NaN stays NaN:
// it is made quiet and keeps its upper payload bits, as with F16C. Pure integer code: no libm, no
// rounding mode.
#pragma once

#include <bit>
#include <cstdint>

namespace gradbus {

// value / 2^shift, rounded to nearest, ties to even. 1 <= shift <= 31.
constexpr uint32_t shift_right_round_even(uint32_t value, uint32_t shift) {
  const uint32_t kept = value >> shift;
  const uint32_t lost = value & ((1u << shift) - 1);
  const uint32_t half = 1u << (shift - 1);
  return kept + (lost > half || (lost == half && (kept & 1) != 0) ? 1 : 0);
}

constexpr float f32_from_f16(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0) {  // zero or subnormal: mantissa * 2^-24, exact in f32
    const float magnitude = static_cast<float>(mantissa) * 0x1p-24f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(magnitude) | sign);
  }
  if (exponent == 0x1f) {
    const uint32_t quiet = mantissa != 0 ? 0x400000 : 0;
    return std::bit_cast<float>(sign | 0x7f800000 | quiet | (mantissa << 13));
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

// Magnitude bits of the f16 nearest to a finite or infinite f32 of magnitude bits `bits`.
constexpr uint32_t f16_magnitude(uint32_t bits) {
  const uint32_t exponent = bits >> 23;
  const uint32_t mantissa = (bits & 0x7fffff) | 0x800000;
  // Below 2^-14 (biased exponent 113) the unit is fixed at 2^-24. Above, 13 bits are dropped. The
  // leading one stays in place and adds 1 to the exponent field.
  const uint32_t shift = exponent >= 113 ? 13 : 126 - exponent;
  if (shift > 24) return 0;  // less than half of the smallest subnormal
  const uint32_t rounded = shift_right_round_even(mantissa, shift);
  const uint32_t result = exponent >= 113 ? ((exponent - 113) << 10) + rounded : rounded;
  return result < 0x7c00 ? result : 0x7c00;
}

constexpr uint16_t f16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude > 0x7f800000) {
    return static_cast<uint16_t>(sign | 0x7e00 | ((magnitude >> 13) & 0x3ff));
  }
  return static_cast<uint16_t>(sign | f16_magnitude(magnitude));
}

constexpr float f32_from_bf16(uint16_t half) {
  return std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
}

constexpr uint16_t bf16_from_f32(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>(shift_right_round_even(bits, 16));
}

}  // namespace gradbus
