// The test names of the kernels.
#pragma once

#include <ostream>

#include "common/kernels/reduce_targets.h"

namespace gradbus {

inline void PrintTo(const ReduceTarget& target, std::ostream* out) { *out << target.name; }

}  // namespace gradbus
