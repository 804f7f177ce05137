// How many ids the tensors of one job may have over its life. An id is never used again, and both
// sides keep tables by id (8 bytes each), so this is a bound on memory: 128 MiB.
#pragma once

#include <cstdint>

namespace gradbus {

inline constexpr uint32_t kTensorIdsMax = 1u << 24;

}  // namespace gradbus
