// What the control plane's two sides agree on besides coordinator.proto: version and limits.
//
// The number grows when an old program could misread a new one; equal numbers are required.
#pragma once

#include <cstdint>

namespace gradbus {

inline constexpr uint32_t kControlProtocol = 6;

// Largest message either side accepts.
inline constexpr int kControlMessageBytesMax = 4 << 20;

// The most that a ReadyTensor takes: its name twice, compression, mode and shape, and its numbers.
inline constexpr int kReadyTensorBytesMax = 5 * 255 + 256;
// Of one RegisterTensors; an agent splits longer lists. A TensorsReady is never longer.
inline constexpr int kTensorsPerMessageMax = 2048;
static_assert(kTensorsPerMessageMax * kReadyTensorBytesMax < kControlMessageBytesMax);
// Of one RunningJob, whose tensors also name the ranks of a node that use them no more.
inline constexpr int kTensorsPerRunningJobMax = 1024;
static_assert(kTensorsPerRunningJobMax * 2 * kReadyTensorBytesMax < kControlMessageBytesMax);

// Of any sentence inside a message, so that it fits an attach packet with its prefix and advice.
inline constexpr uint32_t kControlTextBytesMax = 720;

}  // namespace gradbus
