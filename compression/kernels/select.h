// The elements of a vector whose magnitude lies in a range, packed together in order of their
// indices. The one loop that every codec of the sparse family runs over a whole unit. Any thread.
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

// Vectors are stored whole: both outputs have room for this many elements behind the last one.
inline constexpr size_t kSelectSlack = 64;

// Writes first_index + i to `indices` and values[i] to `selected` for every values[i] in `keys`;
// returns how many. Both have room for count + kSelectSlack elements.
size_t select_magnitudes(const float* values, size_t count, uint32_t first_index, KeyRange keys,
                         uint32_t* indices, float* selected);
size_t select_magnitudes_scalar(const float* values, size_t count, uint32_t first_index,
                                KeyRange keys, uint32_t* indices, float* selected);

}  // namespace gradbus
