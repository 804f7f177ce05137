// The random part of stochastic rounding: 16 bits for each element of a unit, two elements to one
// number of compression/random.h, because drawing is half of the work of a stochastic encoder.
//
// Elements come in groups of 32. Elements j and j + 16 of group g share random_u32(seed, 16 g + j):
// j takes the lower half, j + 16 the upper one. Vectors of 4, 8 and 16 lanes draw alike.
//
// 16 bits make a probability right within 2^-17, so the mean within 2^-17 of a step.
#pragma once

#include <cstdint>

#include "compression/random.h"

namespace gradbus {

inline constexpr uint32_t kDitherGroup = 32;

constexpr uint32_t dither_bits(uint64_t seed, uint32_t index) {
  const uint32_t in_group = index % kDitherGroup;
  const uint32_t pair = index / kDitherGroup * (kDitherGroup / 2) + in_group % (kDitherGroup / 2);
  const uint32_t bits = random_u32(seed, pair);
  return in_group < kDitherGroup / 2 ? bits & 0xffff : bits >> 16;
}

// Uniform in (-1/2, 1/2), both ends out, with mean 0: rounding x + dither to nearest gives the
// neighbours of x with mean x, and a whole x stays. Exact in f32.
inline constexpr float kDitherUnit = 0x1p-16F;
inline constexpr float kDitherCentre = 0.5F - 0x1p-17F;

constexpr float dither(uint64_t seed, uint32_t index) {
  return static_cast<float>(dither_bits(seed, index)) * kDitherUnit - kDitherCentre;
}

}  // namespace gradbus
