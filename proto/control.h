// What the control plane's two sides agree on besides coordinator.proto: version and limits.
//
// The number grows when an old program could misread a new one; equal numbers are required.
#pragma once

#include <cstdint>

namespace gradbus {

inline constexpr uint32_t kControlProtocol = 6;

// Largest message either side accepts.
inline constexpr int kControlMessageBytesMax = 4 << 20;

// Of one RegisterTensors; an agent splits longer lists. A TensorsReady is never longer: with names
// of 255 bytes, twice each, it stays below kControlMessageBytesMax.
inline constexpr int kTensorsPerMessageMax = 4096;
// A tensor has a compression or a mode, never both.
static_assert(kTensorsPerMessageMax * (2 * 255 + 255 + 128) < kControlMessageBytesMax);

// Of any sentence inside a message, so that it fits an attach packet with its prefix and advice.
inline constexpr uint32_t kControlTextBytesMax = 720;

}  // namespace gradbus
