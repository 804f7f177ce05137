// What an agent needs to compress a tensor, as an estimate from above: known before anything is
// allocated, so that it can be held against a quota.
#pragma once

#include <cstdint>

#include "worker_agent/compressed/unit_plan.h"

namespace gradbus {

// Of `count` elements exchanged by `agents`: what is remembered, payloads that come and go, and the
// codecs' own memory. UINT64_MAX where that is no number of bytes. Makes a codec for a moment.
uint64_t compressed_bytes(const CompressionPlan& compression, uint64_t count, uint32_t agents,
                          bool holds_parameters);

}  // namespace gradbus
