// Values back to the elements that a bitmap names: what decodes a dense selection. Any thread.
#pragma once

#include <cstddef>

namespace gradbus {

// The bits of `count` elements that are set; those of the last byte that belong to none are not.
size_t count_bits(const std::byte* bits, size_t count);

// sum[i] += the next of `values` for every bit i of the bitmap (bit i % 8 of byte i / 8); the
// others are left alone. Returns how many bits there are. What lies behind the values is read,
// kExpandSlack of it at most.
inline constexpr size_t kExpandSlack = 8;
size_t add_expanded(const std::byte* bits, size_t count, const float* values, float* sum);
size_t add_expanded_scalar(const std::byte* bits, size_t count, const float* values, float* sum);

}  // namespace gradbus
