// Finds the nonzero elements of a vector that is mostly zeros. Codecs that send whole rows run it
// over a partition. Any thread.
#pragma once

#include <cstddef>

namespace gradbus {

// Returns the index of the first of `values` that is neither 0 nor -0, or `count`. NaN is not 0.
size_t first_not_zero(const float* values, size_t count);
size_t first_not_zero_scalar(const float* values, size_t count);

}  // namespace gradbus
