// Which elements of a vector have a magnitude in a range: the loop that the codecs of selections
// run over a whole unit. Any thread.
//
// Magnitudes are compared as keys: the bits of |value|, which order finite values as numbers do;
// Inf comes above them and NaN on top, so neither slips through a selection of the largest.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>

namespace gradbus {

inline constexpr uint32_t kKeyMax = 0x7fffffff;
inline constexpr uint32_t kKeyInfinity = 0x7f800000;

constexpr uint32_t magnitude_key(float value) { return std::bit_cast<uint32_t>(value) & kKeyMax; }

struct KeyRange {
  uint32_t first = 0;
  uint32_t last = kKeyMax;
};

// Bit i % 64 of masks[i / 64] says whether values[i] is in `keys`; the last mask's other bits are
// 0.
void magnitude_masks(const float* values, size_t count, KeyRange keys, uint64_t* masks);
void magnitude_masks_scalar(const float* values, size_t count, KeyRange keys, uint64_t* masks);

// Elements of a block of the codecs of the largest, which look at each once: with 2048 what happens
// between two blocks was an eighth of top-k's time (AMD Zen 3).
inline constexpr size_t kSelectElements = 16384;

// A block of a unit, v[i] = gradient[i] + decay * kept[i] as in compensate.h.
struct SelectBlock {
  const float* gradient = nullptr;  // null: zeros
  float* kept = nullptr;            // null: v = gradient
  float decay = 1;
  size_t count = 0;
  bool clears = false;  // what is selected leaves 0 in `kept`, not v
};

struct TakenBlock {
  size_t taken = 0;  // elements
  size_t found = 0;  // of them, that were selected
};

// Leaves v in `kept`, sets bit i % 64 of masks[i / 64] where its key is `from` or more, and writes
// those v to `values`, behind which kValueSlack may be overwritten; the last mask's other bits are
// 0. `taken` is the count; or, where an element is not finite, how many lie in front of the word of
// 64 that it is in: what follows has been left as it was. One pass: two over a block, of which
// each called up half of the next one, took 1.15 times as long (AMD EPYC), and values squeezed out
// of the cache afterwards 1.4 times (Zen 3).
inline constexpr size_t kValueSlack = 16;
TakenBlock take_block(const SelectBlock& block, uint32_t from, uint64_t* masks, float* values);
TakenBlock take_block_scalar(const SelectBlock& block, uint32_t from, uint64_t* masks,
                             float* values);

// Writes first + i for every bit i of the masks of `count` elements, in order, and returns how many
// there are. What lies behind them is overwritten, kIndexSlack of it at most.
inline constexpr size_t kIndexSlack = 16;
size_t put_indices(const uint64_t* masks, size_t count, uint32_t first, uint32_t* indices);

// Calls visit(i) for every values[i] in `keys`, in order. Masks first and bits then: a branch on
// what was just read from memory, or a vector compressed at each step, took two to five times the
// time of reading at densities around 0.01; this takes 1.2 times.
template <typename Visit>
void for_each_in_range(const float* values, size_t count, KeyRange keys, const Visit& visit) {
  constexpr size_t kMasks = 32;
  uint64_t masks[kMasks];
  for (size_t first = 0; first < count; first += 64 * kMasks) {
    const size_t block = count - first < 64 * kMasks ? count - first : 64 * kMasks;
    magnitude_masks(values + first, block, keys, masks);
    for (size_t m = 0; m < (block + 63) / 64; ++m)
      for (uint64_t mask = masks[m]; mask != 0; mask &= mask - 1)
        visit(first + 64 * m + static_cast<size_t>(std::countr_zero(mask)));
  }
}

}  // namespace gradbus
