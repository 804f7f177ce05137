// The version and the limits that both sides of the control plane share, in addition to
// coordinator.proto.
//
// The version grows when an old program could misread a new one. Both sides must have the same
// version.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace gradbus {

inline constexpr uint32_t kControlProtocol = 9;

// Largest message either side accepts.
inline constexpr int kControlMessageBytesMax = 4 << 20;

// The maximum size of a ReadyTensor: its name twice, compression, mode and shape, and its numbers.
inline constexpr int kReadyTensorBytesMax = 5 * 255 + 256;
// The maximum of one RegisterTensors; an agent splits longer lists. A TensorsReady is never longer.
inline constexpr int kTensorsPerMessageMax = 2048;
static_assert(kTensorsPerMessageMax * kReadyTensorBytesMax < kControlMessageBytesMax);
// The maximum of one RunningJob, whose tensors also list the ranks that have released them.
inline constexpr int kTensorsPerRunningJobMax = 1024;
static_assert(kTensorsPerRunningJobMax * 2 * kReadyTensorBytesMax < kControlMessageBytesMax);

// The maximum of tensors in a TensorsRetired; the coordinator splits longer lists.
inline constexpr size_t kRetiredPerMessageMax = 1 << 18;
static_assert(kRetiredPerMessageMax * 5 < kControlMessageBytesMax);
// The maximum of tensors whose fidelity or staleness is in a Heartbeat, of all jobs. An agent
// leaves others out: they come again when they are measured again.
inline constexpr size_t kMeasuredPerHeartbeatMax = 4096;
static_assert(kMeasuredPerHeartbeatMax * (255 + 64) < kControlMessageBytesMax / 2);

// The maximum of any text in a message, so that it fits an attach packet with its prefix and
// advice.
inline constexpr uint32_t kControlTextBytesMax = 720;

inline constexpr size_t kNodeNameBytesMax = 127;

// How long a rank waits for the others of its job. `asked`: as it wishes; 0: the default.
constexpr uint64_t start_timeout_ms(uint64_t asked) {
  constexpr uint64_t kDefault = 60'000, kMax = 24ull * 3600 * 1000;
  return asked == 0 ? kDefault : std::min(asked, kMax);
}

// The maximum of a rank's question and of its answer: a layer takes about 100 bytes.
inline constexpr size_t kQuestionBytesMax = 1 << 20;
static_assert(kQuestionBytesMax < kControlMessageBytesMax);

}  // namespace gradbus
