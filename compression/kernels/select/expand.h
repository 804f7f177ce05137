// Moves values back to the elements that a bitmap marks. This decodes a dense selection. Any
// thread.
#pragma once

#include <cstddef>

namespace gradbus {

// Counts the set bits of `count` elements. Ignores bits of the last byte beyond them.
size_t count_bits(const std::byte* bits, size_t count);

// sum[i] += the next of `values`, for every set bit i of the bitmap (bit i % 8 of byte i / 8).
// Other elements do not change. Returns the number of set bits. Reads at most kExpandSlack values
// behind the last one.
inline constexpr size_t kExpandSlack = 8;
size_t add_expanded(const std::byte* bits, size_t count, const float* values, float* sum);
size_t add_expanded_scalar(const std::byte* bits, size_t count, const float* values, float* sum);

}  // namespace gradbus
