// The GPUs of this node, for the agent. They are initialised when a rank first requests one. CUDA
// needs seconds to start with several GPUs, so a separate thread does that.
//
// Conductor thread only; the engine owns the created objects.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "worker_agent/gpu/device_tensor.h"
#include "worker_agent/gpu/device_trial.h"

namespace gradbus {

// The GPU on which a rank wants its elements, and what it can open there.
struct WantedDevice {
  DeviceId id;
  SharingReasons why_not;
  Status problem;  // why there was no trial
};

// For a rank without a trial: it is assumed to open CUDA's IPC handles, as before other ways
// existed.
WantedDevice untried(const DeviceId& id);

// "auto": the first of legacy, vmm and fabric that all ranks of a node can open; or one of these
// names. GB-F100 for another word.
Result<std::vector<CudaSharing>> parse_device_sharing(const std::string& text);
const char* name_of(CudaSharing sharing);

class Devices {
 public:
  // `breathe` is called repeatedly while a tensor waits for CUDA to start.
  Devices(std::function<void()> breathe, std::vector<CudaSharing> sharings)
      : breathe_(std::move(breathe)), sharings_(std::move(sharings)) {}
  ~Devices();

  // A rank has requested a GPU: starts the initialisation, the first time.
  void look();
  // The memory of this GPU for a rank to open. GB-D620 to D624 with the reason if there is none.
  Result<std::unique_ptr<DeviceTrial>> make_trial(const DeviceId& id);
  // `wanted` by local rank; empty for a rank with its elements in host memory. Fills in `home`,
  // `devices` and `sharing` of the plan, and `pinned` of a tensor that leaves the node. GB-D620 to
  // D624 or D628 with the reason on failure.
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
  // Written by that thread, and read after it has finished.
  const CudaPlugin* plugin_ = nullptr;
  std::vector<CudaDeviceInfo> devices_;
  Status none_;  // why there are none
  std::vector<std::weak_ptr<PinnedSegment>> pinned_;
  uint32_t made_ = 0;
};

}  // namespace gradbus
