// Where a vector that is mostly zeros is not: what codecs of whole rows run over a unit. Any
// thread.
#pragma once

#include <cstddef>

namespace gradbus {

// The index of the first of `values` that is neither 0 nor -0 (a NaN is not), or `count`.
size_t first_not_zero(const float* values, size_t count);
size_t first_not_zero_scalar(const float* values, size_t count);

}  // namespace gradbus
