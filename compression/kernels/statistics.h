// What a quantizer asks of a bucket before it chooses a scale: the largest magnitude, or the sum of
// squares. Pure; any thread.
//
// The sum has one order on every processor: f64, element i of the run into lane i % 16, then lanes
// j and j + 8, j + 4, j + 2, j + 1. Squares of f32 neither overflow nor underflow in f64.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradbus {

// The bits of the largest |value| of each bucket of `bucket` elements, the last one perhaps cut
// short. Bits order as magnitudes do, with Inf above numbers and NaN above Inf.
void largest_magnitudes(std::span<const float> values, size_t bucket, uint32_t* bits);
void largest_magnitudes_scalar(std::span<const float> values, size_t bucket, uint32_t* bits);

double sum_of_squares(std::span<const float> values);
double sum_of_squares_scalar(std::span<const float> values);

}  // namespace gradbus
