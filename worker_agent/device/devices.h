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
#include "worker_agent/device/device_trial.h"

namespace gradbus {

// Where a rank wants its elements, and what it can open there.
struct WantedDevice {
  DeviceId id;
  SharingReasons why_not;
  Status problem;  // why there was nothing to try
};

// What nobody has tried, any rank can do: of CUDA's IPC handles that was so before there were
// others.
WantedDevice untried(const DeviceId& id);

// "auto": the first of legacy, vmm and fabric that all ranks of a node can open; or one of these.
// GB-F100 for another word.
Result<std::vector<CudaSharing>> parse_device_sharing(const std::string& text);
const char* name_of(CudaSharing sharing);

class Devices {
 public:
  // `breathe` is called again and again while a tensor waits for CUDA to begin.
  Devices(std::function<void()> breathe, std::vector<CudaSharing> sharings)
      : breathe_(std::move(breathe)), sharings_(std::move(sharings)) {}
  ~Devices();

  // A rank has asked for a GPU: begins to look for them, the first time.
  void look();
  // What a rank is to open, of this GPU. GB-D620 to D624: why there is nothing.
  Result<std::unique_ptr<DeviceTrial>> make_trial(const DeviceId& id);
  // `wanted` by local rank, none where a rank keeps its elements in host memory; `home`, `devices`
  // and `sharing` of the plan are filled in, and `pinned` of a tensor that leaves the node. Else
  // why it cannot be: GB-D620 to D624, D628.
  Result<std::shared_ptr<DeviceTensor>> make(const std::vector<std::optional<WantedDevice>>& wanted,
                                             DevicePlan plan,
                                             const std::shared_ptr<Segment>& segment);

 private:
  Status wait();
  Result<uint32_t> find(const DeviceId& wanted) const;
  Status choose_sharing(const std::vector<std::optional<WantedDevice>>& wanted,
                        DevicePlan& plan) const;
  Result<std::shared_ptr<PinnedSegment>> pin(const std::shared_ptr<Segment>& segment);

  const std::function<void()> breathe_;
  const std::vector<CudaSharing> sharings_;  // in the order of preference
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
