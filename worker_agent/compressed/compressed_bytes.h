// An upper estimate of the memory that an agent needs to compress a tensor. It is known before
// anything is allocated, so it can be compared with a quota.
#pragma once

#include <cstdint>

#include "data_plane/partition_plan.h"

namespace gradbus {

// For `count` elements exchanged by `agents`: residuals, payloads in both directions, and the
// codecs' memory. UINT64_MAX if that overflows. Creates a codec temporarily.
uint64_t compressed_bytes(const CompressionPlan& compression, uint64_t count, uint32_t agents,
                          bool holds_parameters);

}  // namespace gradbus
