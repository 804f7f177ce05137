// This node's GPUs, as far as an agent uses them: looked for when a rank first asks for one. CUDA
// takes seconds to begin with several GPUs; a thread of its own does that.
//
// Conductor thread only; what it makes is the engine's.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker_agent/device/device_tensor.h"

namespace gradbus {

class Devices {
 public:
  // `breathe` is called again and again while a tensor waits for CUDA to begin.
  explicit Devices(std::function<void()> breathe) : breathe_(std::move(breathe)) {}
  ~Devices();

  // A rank has asked for a GPU: begins to look for them, the first time.
  void look();
  // `wanted` by local rank, none where a rank keeps its elements in host memory; `home` and
  // `devices` of the plan are filled in, and `pinned` of a tensor that leaves the node. Else why
  // it cannot be: GB-D620 to D624, D628.
  Result<std::shared_ptr<DeviceTensor>> make(const std::vector<std::optional<DeviceId>>& wanted,
                                             DevicePlan plan,
                                             const std::shared_ptr<Segment>& segment);

 private:
  Status wait();
  Result<uint32_t> find(const DeviceId& wanted) const;
  Result<std::shared_ptr<PinnedSegment>> pin(const std::shared_ptr<Segment>& segment);

  const std::function<void()> breathe_;
  std::thread looks_;
  std::atomic<bool> has_looked_{false};
  // Written by that thread, read once it has looked.
  const CudaPlugin* plugin_ = nullptr;
  std::vector<CudaDeviceInfo> devices_;
  Status none_;  // why there are none
  std::vector<std::weak_ptr<PinnedSegment>> pinned_;
  uint32_t made_ = 0;
};

}  // namespace gradbus
