// The random part of stochastic rounding: 15 bits for each element of a partition. Two elements
// share one random number, because drawing would otherwise be most of the work of a stochastic
// encoder.
//
// Numbers are computed from counters, as in compression/random.h. Pair p of a stream gets
// mix_u32(start + p * step), with start and step drawn from the seed. That is half the work of
// random_u32(): one mix instead of two.
//
// Elements come in groups of 32. Elements j and j + 16 of group g are pair 16 g + j: j gets the
// lower bits, j + 16 the upper ones. Vectors of 4, 8 and 16 lanes draw the same numbers.
#pragma once

#include <cstdint>

#include "compression/random.h"

namespace gradbus {

inline constexpr uint32_t kDitherGroup = 32;
inline constexpr uint32_t kDitherBits = 15;

struct DitherStream {
  uint32_t start;
  uint32_t step;  // odd, so that no counter of a stream repeats
};

constexpr DitherStream dither_stream(uint64_t seed) {
  const uint64_t bits = mix_u64(seed);
  return {static_cast<uint32_t>(bits), static_cast<uint32_t>(bits >> 32) | 1};
}

// Uniform in [0, 2^15).
constexpr uint32_t dither_bits(const DitherStream& stream, uint32_t index) {
  const uint32_t in_group = index % kDitherGroup;
  const uint32_t pair = index / kDitherGroup * (kDitherGroup / 2) + in_group % (kDitherGroup / 2);
  const uint32_t bits = mix_u32(stream.start + pair * stream.step);
  return in_group < kDitherGroup / 2 ? bits & 0x7fff : bits >> 17;
}

}  // namespace gradbus
