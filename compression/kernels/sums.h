// Sums over vectors in f64, in the lanes of lanes.h, hence alike on every processor. f64 holds a
// product of two f32 exactly, and sums of them cannot overflow. Any thread.
#pragma once

#include <cstddef>

namespace gradbus {

// Sum of |values[i]|: the L1 norm. NaN or Inf when an element is.
double sum_magnitudes(const float* values, size_t count);

// The same of gradient[i] + decay * kept[i], as in compensate.h; a null gradient is zeros.
double sum_magnitudes(const float* gradient, const float* kept, float decay, size_t count);

// Sum of a[i] * b[i].
double dot_product(const float* a, const float* b, size_t count);

// The definitions.
double sum_magnitudes_scalar(const float* values, size_t count);
double sum_magnitudes_scalar(const float* gradient, const float* kept, float decay, size_t count);
double dot_product_scalar(const float* a, const float* b, size_t count);

}  // namespace gradbus
