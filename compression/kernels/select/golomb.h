// The Golomb code of the gaps between indices (index_coding.h), computed with vectors. Each word
// gets two entries; the caller then concatenates the words. Any thread.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gradbus {

// The remainder of a division by m has `width` = floor(log2 m) bits for the first `shorts` values,
// and one more for the others. The optional bit comes last, so the first `width` bits tell which
// case it is.
struct GolombCode {
  explicit GolombCode(uint32_t m)
      : divisor(m),
        width(static_cast<uint32_t>(std::bit_width(m)) - 1),
        shorts(static_cast<uint32_t>((uint64_t{2} << width) - m)),
        shift(31 + width + 1),
        reciprocal((uint64_t{1} << shift) / m + 1) {}

  // gap / m for gap < 2^31, exact: reciprocal * m exceeds 2^shift by at most m < 2^(shift - 31)
  // (Granlund and Montgomery 1994). reciprocal <= 2^32 + 1, so the product fits 64 bits.
  uint32_t quotient(uint32_t gap) const {
    return static_cast<uint32_t>((gap * reciprocal) >> shift);
  }

  uint32_t divisor;
  uint32_t width;
  uint32_t shorts;
  uint32_t shift;
  uint64_t reciprocal;
};

// One entry: `quotient` zeros, then the low bits of `tail`, which are a one and the remainder.
struct GolombEntry {
  uint32_t quotient;
  uint32_t tail_bits;
  uint64_t tail;
};

inline GolombEntry golomb_entry(const GolombCode& code, uint32_t gap) {
  const uint32_t quotient = code.quotient(gap);
  const uint32_t rest = gap - quotient * code.divisor;
  const uint32_t is_long = rest >= code.shorts ? 1 : 0;
  const uint64_t number = rest + (code.shorts & (0 - is_long));
  const uint64_t bits = number >> is_long | (number & is_long) << code.width;
  return {.quotient = quotient, .tail_bits = 1 + code.width + is_long, .tail = bits << 1 | 1};
}

// Encodes an even number of indices, at most kGolombBlock. Another index must be in front of them.
// Entries 2 i and 2 i + 1 are the low lengths[i] bits of words[i], the first entry lowest; other
// bits are 0. Returns false, with undefined contents, if an entry is or may be longer than
// kGolombEntryBits.
inline constexpr size_t kGolombBlock = 256;
inline constexpr uint32_t kGolombEntryBits = 28;  // one store writes two entries
bool golomb_pairs(const GolombCode& code, const uint32_t* indices, size_t entries, uint64_t* words,
                  uint64_t* lengths);
bool golomb_pairs_scalar(const GolombCode& code, const uint32_t* indices, size_t entries,
                         uint64_t* words, uint64_t* lengths);

}  // namespace gradbus
