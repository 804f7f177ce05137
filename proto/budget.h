// The most bytes in flight that a tensor may ask for (worker_agent/data/start_order.h).
#pragma once

#include <cstdint>

namespace gradbus {

inline constexpr uint64_t kBudgetBytesMax = 1ull << 40;

}  // namespace gradbus
