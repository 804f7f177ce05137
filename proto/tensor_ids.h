// How many ids the tensors of one job may use over its life. An id is never reused, and both sides
// keep tables by id (8 bytes each). So this limits memory: 128 MiB.
#pragma once

#include <cstdint>

namespace gradbus {

inline constexpr uint32_t kTensorIdsMax = 1u << 24;

}  // namespace gradbus
