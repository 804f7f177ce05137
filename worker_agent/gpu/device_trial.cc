#include "worker_agent/gpu/device_trial.h"

namespace gradbus {
namespace {

// CUDA maps at least 2 MiB in any case.
constexpr uint64_t kTrialBytes = 4096;

}  // namespace

Result<std::unique_ptr<DeviceTrial>> DeviceTrial::make(const CudaPlugin& plugin, uint32_t device,
                                                       const std::vector<CudaSharing>& sharings) {
  std::unique_ptr<DeviceTrial> trial(new DeviceTrial(plugin, device));
  trial->why_not_.fill("this agent does not share memory so");
  Status first;
  for (const CudaSharing sharing : sharings) {
    const Status added = trial->add(sharing);
    trial->why_not_[static_cast<size_t>(sharing) - 1] = added.message();
    if (first.ok()) first = added;
  }
  if (trial->shared_.empty()) return first;
  GRADBUS_RETURN_IF_ERROR(trial->add_event());
  return trial;
}

DeviceTrial::~DeviceTrial() {
  if (event_ != nullptr) plugin_.table->destroy_event(event_);
  for (void* memory : memory_) plugin_.table->free(device_, memory);
}

Status DeviceTrial::add(CudaSharing sharing) {
  const std::string what = "GPU " + std::to_string(device_) + ": memory";
  void* memory = nullptr;
  GRADBUS_RETURN_IF_ERROR(cuda_status(
      plugin_, plugin_.table->allocate_shared(device_, kTrialBytes, sharing, &memory), what));
  memory_.push_back(memory);
  SharedMemory shared;
  GRADBUS_RETURN_IF_ERROR(
      cuda_status(plugin_, plugin_.table->share(device_, memory, &shared.share), what));
  shared.descriptor.reset(shared.share.descriptor);
  shared_.push_back(std::move(shared));
  return {};
}

Status DeviceTrial::add_event() {
  const std::string what = "GPU " + std::to_string(device_) + ": an event";
  GRADBUS_RETURN_IF_ERROR(
      cuda_status(plugin_, plugin_.table->create_shared_event(device_, &event_), what));
  CudaShare share;
  GRADBUS_RETURN_IF_ERROR(cuda_status(plugin_, plugin_.table->share_event(event_, &share), what));
  event_share_ = to_packet(share);
  return {};
}

}  // namespace gradbus
