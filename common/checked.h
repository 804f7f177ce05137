// Arithmetic on sizes from outside: a result that does not fit its type is UINT64_MAX, which no
// quota and no allocation allows, instead of a small number.
#pragma once

#include <cstdint>

namespace gradbus {

constexpr uint64_t checked_product(uint64_t a, uint64_t b) {
  uint64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

constexpr uint64_t checked_sum(uint64_t a, uint64_t b) {
  uint64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

template <typename... More>
constexpr uint64_t checked_sum(uint64_t a, uint64_t b, More... more) {
  return checked_sum(checked_sum(a, b), more...);
}

}  // namespace gradbus
