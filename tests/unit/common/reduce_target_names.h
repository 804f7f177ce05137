// How tests name the kernels that they are run with.
#pragma once

#include <ostream>

#include "common/kernels/reduce_targets.h"

namespace gradbus {

inline void PrintTo(const ReduceTarget& target, std::ostream* out) { *out << target.name; }

}  // namespace gradbus
