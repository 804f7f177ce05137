// Sums over vectors in f64, in the lanes of lanes.h, so they are equal on every processor. f64
// represents a product of two f32 exactly, and sums of products cannot overflow. Any thread.
#pragma once

#include <cstddef>

namespace gradbus {

// Sum of |values[i]|: the L1 norm. NaN or Inf when an element is.
double sum_magnitudes(const float* values, size_t count);

// The same for gradient[i] + decay * kept[i], as in compensate.h; a null gradient means zeros.
double sum_magnitudes(const float* gradient, const float* kept, float decay, size_t count);

// Sum of a[i] * b[i].
double dot_product(const float* a, const float* b, size_t count);

// The scalar definitions.
double sum_magnitudes_scalar(const float* values, size_t count);
double sum_magnitudes_scalar(const float* gradient, const float* kept, float decay, size_t count);
double dot_product_scalar(const float* a, const float* b, size_t count);

}  // namespace gradbus
