// Sums that are equal on every processor, for any vector width. They are kept in 16 lanes (in
// statistics.h 32). Lane l sums the elements l, l + 16, ..., and at the end the lanes are added as
// a tree.
#pragma once

#include <cstddef>

namespace gradbus {

inline constexpr size_t kSumLanes = 16;

constexpr size_t whole_lanes(size_t count) {
  return (count + kSumLanes - 1) / kSumLanes * kSumLanes;
}

// Overwrites the lanes.
template <size_t kWidth = kSumLanes, typename T>
constexpr T tree_sum(T* lanes) {
  for (size_t width = kWidth / 2; width > 0; width /= 2)
    for (size_t l = 0; l < width; ++l) lanes[l] += lanes[l + width];
  return lanes[0];
}

}  // namespace gradbus
