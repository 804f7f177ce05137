// How a payload is divided into frames. Every sender and receiver computes the same result.
#pragma once

#include <algorithm>
#include <cstdint>

#include "proto/frame.h"

namespace gradbus {

// One chunk is sent on while the next one arrives.
inline constexpr uint64_t kPayloadChunkBytes = 256 << 10;
static_assert(kPayloadChunkBytes <= kFramePayloadBytesMax, "a chunk is a frame");

struct PayloadCut {
  uint64_t bytes = 0;

  // At least 1.
  uint32_t frames() const {
    return static_cast<uint32_t>(
        std::max<uint64_t>((bytes + kPayloadChunkBytes - 1) / kPayloadChunkBytes, 1));
  }
  uint64_t bytes_of(uint32_t frame) const {
    return std::min(kPayloadChunkBytes, bytes - frame * kPayloadChunkBytes);
  }
};

}  // namespace gradbus
