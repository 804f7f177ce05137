// What a quantizer asks of a bucket before it chooses a scale: the largest magnitude, and where it
// wants it the sum of squares, in the pass that makes v. Pure; any thread.
//
// The sum has one order on every processor: f64, element i of the bucket into lane i % 32, then
// lanes j and j + 16, j + 8, j + 4, j + 2, j + 1. With 16 lanes each addition waited for the one
// before it: qsgd took 1.1 times as long (Zen 3). Squares of f32 neither overflow nor underflow in
// f64.
#pragma once

#include <cstddef>
#include <cstdint>

namespace gradbus {

inline constexpr size_t kSquareLanes = 32;

// A run of elements that begins with a bucket, v[i] = gradient[i] + decay * kept[i] as in
// compensate.h.
struct StatisticsRun {
  const float* gradient = nullptr;  // null: zeros
  const float* kept = nullptr;      // null: v = gradient
  float decay = 1;
  size_t count = 0;
  size_t bucket = 0;   // elements; the last one perhaps cut short
  float* v = nullptr;  // gets v where something is kept
};

// Of each bucket: the bits of its largest |v|, which order as magnitudes do, with Inf above numbers
// and NaN above Inf; and its sum of squares. Null: not asked for, but not both.
void take_statistics(const StatisticsRun& run, uint32_t* largest, double* squares);
void take_statistics_scalar(const StatisticsRun& run, uint32_t* largest, double* squares);

}  // namespace gradbus
