// Agreed between a coordinator that was started again and the nodes of jobs that run.
#pragma once

#include "common/clock.h"

namespace gradbus {

// In addition to a lease, the coordinator waits this long for nodes to attach again.
inline constexpr Nanos kReturnMargin = 10 * kSecond;

}  // namespace gradbus
