// Memory of a GPU for a rank to try to open, in each way that the agent would share a tensor's: a
// rank in other namespaces than the agent, or with another driver, cannot open everything, and a
// tensor's memory is made for all ranks of the node before any of them sees it. An event, too,
// without which memory is of no use.
//
// Conductor thread only.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "worker_agent/device/device_tensor.h"

namespace gradbus {

// Why memory cannot be shared with a rank by each DeviceSharing (minus 1); "": it can.
using SharingReasons = std::array<std::string, kDeviceSharings>;

class DeviceTrial {
 public:
  // GB-D623, D624 where none of `sharings`, or no event, can be made.
  static Result<std::unique_ptr<DeviceTrial>> make(const CudaPlugin& plugin, uint32_t device,
                                                   const std::vector<CudaSharing>& sharings);
  ~DeviceTrial();
  DeviceTrial(const DeviceTrial&) = delete;
  DeviceTrial& operator=(const DeviceTrial&) = delete;

  // One for each way that could be made.
  const std::vector<SharedMemory>& memory() const { return shared_; }
  const DeviceShare& event() const { return event_share_; }
  // Of the other ways.
  const SharingReasons& why_not() const { return why_not_; }

 private:
  DeviceTrial(const CudaPlugin& plugin, uint32_t device) : plugin_(plugin), device_(device) {}
  Status add(CudaSharing sharing);
  Status add_event();

  const CudaPlugin& plugin_;
  const uint32_t device_;
  std::vector<void*> memory_;
  std::vector<SharedMemory> shared_;
  CudaEvent* event_ = nullptr;
  DeviceShare event_share_;
  SharingReasons why_not_;
};

}  // namespace gradbus
