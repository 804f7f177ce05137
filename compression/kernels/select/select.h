// Finds the elements of a vector whose magnitude is in a range. The selecting codecs run this loop
// over a whole partition. Any thread.
//
// Magnitudes are compared as keys: the bits of |value|. They order finite values as numbers; Inf is
// above them and NaN on top. So neither is missed by a selection of the largest.
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

// Bit i % 64 of masks[i / 64] is set if values[i] is in `keys`. The other bits of the last mask are
// 0.
void magnitude_masks(const float* values, size_t count, KeyRange keys, uint64_t* masks);
void magnitude_masks_scalar(const float* values, size_t count, KeyRange keys, uint64_t* masks);

// Elements per block of the codecs that select the largest and read each element once. With 2048,
// the work between two blocks was an eighth of top-k's time (AMD Zen 3).
inline constexpr size_t kSelectElements = 16384;

// A block of a partition, v[i] = gradient[i] + decay * kept[i] as in compensate.h.
struct SelectBlock {
  const float* gradient = nullptr;  // null: zeros
  float* kept = nullptr;            // null: v = gradient
  float decay = 1;
  size_t count = 0;
  bool clears = false;  // selected elements leave 0 in `kept`, not v
};

struct TakenBlock {
  size_t taken = 0;  // elements
  size_t found = 0;  // number of selected elements among them
};

// Leaves v in `kept`. Sets bit i % 64 of masks[i / 64] where the key of v is at least `from`, and
// writes those v to `values`. kValueSlack values behind them may be overwritten. The other bits of
// the last mask are 0. `taken` is the count. If an element is not finite, `taken` is the number of
// elements before the word of 64 that contains it; that word and all later ones are unchanged. It
// is one pass: two passes over a block, each prefetching half of the next one, took 1.15 times as
// long (AMD EPYC). Compressing values that had left the cache took 1.4 times (Zen 3).
inline constexpr size_t kValueSlack = 16;
TakenBlock take_block(const SelectBlock& block, uint32_t from, uint64_t* masks, float* values);
TakenBlock take_block_scalar(const SelectBlock& block, uint32_t from, uint64_t* masks,
                             float* values);

// Writes first + i for every set bit i of the masks of `count` elements, in order. Returns their
// number. At most kIndexSlack indices behind them are overwritten.
inline constexpr size_t kIndexSlack = 16;
size_t put_indices(const uint64_t* masks, size_t count, uint32_t first, uint32_t* indices);

// Calls visit(i) for every values[i] in `keys`, in order. It makes masks first and visits bits
// then, which takes 1.2 times the time of reading. A branch on values just read from memory, or a
// vector compressed at each step, took two to five times at densities around 0.01.
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
