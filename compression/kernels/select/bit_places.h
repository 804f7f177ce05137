// Which bits of a byte are set, and their order among the set bits. The tables are permutations for
// processors without instructions that compress or expand a vector.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

namespace gradbus {

using ByteTable = std::array<std::array<uint8_t, 8>, 256>;

// For bit i of a byte: the number of set bits below it.
constexpr ByteTable make_bit_ranks() {
  ByteTable ranks{};
  for (uint32_t bits = 0; bits < 256; ++bits)
    for (uint32_t i = 0; i < 8; ++i)
      ranks[bits][i] = static_cast<uint8_t>(std::popcount(bits & ((1u << i) - 1)));
  return ranks;
}

// The set bits of a byte in order, then the other bits.
constexpr ByteTable make_bit_places() {
  ByteTable places{};
  for (uint32_t bits = 0; bits < 256; ++bits) {
    size_t set = 0;
    auto other = static_cast<size_t>(std::popcount(bits));
    for (uint32_t i = 0; i < 8; ++i)
      places[bits][(bits >> i & 1) != 0 ? set++ : other++] = static_cast<uint8_t>(i);
  }
  return places;
}

inline constexpr ByteTable kBitRanks = make_bit_ranks();
inline constexpr ByteTable kBitPlaces = make_bit_places();

}  // namespace gradbus
