// The statistics from which a quantizer chooses a bucket's scale: the largest magnitude and, if
// needed, the sum of squares. They are computed in the pass that makes v. Pure; any thread.
//
// The sum has the same order on every processor. Element i of the bucket is added to f64 lane i %
// 32, then lanes j and j + 16, j + 8, j + 4, j + 2, j + 1. With 16 lanes each addition waited for
// the previous one: qsgd took 1.1 times as long (Zen 3). Squares of f32 neither overflow nor
// underflow in f64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradbus {

inline constexpr size_t kSquareLanes = 32;

// A run of elements that starts at a bucket, v[i] = gradient[i] + decay * kept[i] as in
// compensate.h.
struct StatisticsRun {
  const float* gradient = nullptr;  // null: zeros
  const float* kept = nullptr;      // null: v = gradient
  float decay = 1;
  size_t count = 0;
  size_t bucket = 0;   // elements; the last bucket may be shorter
  float* v = nullptr;  // gets v if something is kept
};

// For each bucket: the bits of its largest |v|, and its sum of squares. The bits order as
// magnitudes do, with Inf above numbers and NaN above Inf. One of the pointers may be null if it is
// not needed.
void take_statistics(const StatisticsRun& run, uint32_t* largest, double* squares);
void take_statistics_scalar(const StatisticsRun& run, uint32_t* largest, double* squares);

}  // namespace gradbus
