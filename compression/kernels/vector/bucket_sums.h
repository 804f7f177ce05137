// Intermediate statistics of a bucket (statistics.h): its largest magnitude and the lanes of its
// squares. Any thread.
#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "compression/kernels/vector/lanes.h"
#include "compression/kernels/vector/statistics.h"

namespace gradbus {

struct BucketSums {
  uint32_t largest = 0;
  alignas(64) double lanes[kSquareLanes] = {};

  // Call it once: it overwrites the lanes.
  double squares() { return tree_sum<kSquareLanes>(lanes); }

  // Adds elements [at, end) of a bucket that begins at `first`, one at a time.
  void add(const StatisticsRun& run, size_t first, size_t at, size_t end) {
    for (; at < end; ++at) {
      float v = run.gradient == nullptr ? 0.0F : run.gradient[at];
      if (run.kept != nullptr) run.v[at] = v = v + run.decay * run.kept[at];
      largest = std::max(largest, std::bit_cast<uint32_t>(v) & 0x7fffffff);
      lanes[(at - first) % kSquareLanes] += static_cast<double>(v) * v;
    }
  }
};

}  // namespace gradbus
