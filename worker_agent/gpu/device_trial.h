// GPU memory that a rank tries to open, in each way in which the agent would share a tensor. A rank
// in other namespaces, or with another driver, cannot open every kind. A tensor's memory is created
// for all ranks of the node before any of them opens it. The trial also contains an event, because
// memory is useless without one.
//
// Conductor thread only.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "worker_agent/gpu/device_tensor.h"

namespace gradbus {

// For each DeviceSharing (minus 1), why memory cannot be shared with a rank in this way; "": it
// can.
using SharingReasons = std::array<std::string, kDeviceSharings>;

class DeviceTrial {
 public:
  // Returns GB-D623 or D624 if none of `sharings`, or no event, can be created.
  static Result<std::unique_ptr<DeviceTrial>> make(const CudaPlugin& plugin, uint32_t device,
                                                   const std::vector<CudaSharing>& sharings);
  ~DeviceTrial();
  DeviceTrial(const DeviceTrial&) = delete;
  DeviceTrial& operator=(const DeviceTrial&) = delete;

  // One for each way that could be created.
  const std::vector<SharedMemory>& memory() const { return shared_; }
  const DeviceShare& event() const { return event_share_; }
  // The reasons for the other ways.
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
