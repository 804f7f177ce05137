// Sizes of chunks and partitions: whole multiples of an alignment unit.
#pragma once

#include <cstdint>

namespace gradbus {

inline constexpr uint64_t kAlignElements = 64;

constexpr uint64_t divide_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }
constexpr uint64_t round_up(uint64_t value, uint64_t to) { return divide_up(value, to) * to; }

}  // namespace gradbus
