// The forms of reduce() compiled for different instruction sets. reduce() takes the first; tests
// run each of them against reduce_scalar(). Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "common/dtype.h"

namespace gradbus {

// reduce() with plain arguments. At least one source and one target; divisor > 0.
using ReduceKernel = void (*)(DType dtype, const std::byte* const* sources, size_t source_count,
                              std::byte* const* targets, size_t target_count, size_t count,
                              uint32_t divisor);

struct ReduceTarget {
  std::string_view name;  // "avx512", "avx2", "sse4", ..., "scalar"
  ReduceKernel run;
};

// Those this processor can run, fastest first, "scalar" always last.
std::span<const ReduceTarget> reduce_targets();

}  // namespace gradbus
