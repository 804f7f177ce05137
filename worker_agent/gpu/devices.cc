#include "worker_agent/gpu/devices.h"

#include <algorithm>
#include <cstdio>

#include "common/clock.h"
#include "common/errors.h"

namespace gradbus {
namespace {

// Less than the time that a rank waits for its registration.
constexpr Nanos kPatience = 30 * kSecond;

std::string text_of(const DeviceId& id) {
  std::string text = "GPU-";
  char digits[3];
  for (size_t i = 0; i < id.size(); ++i) {
    if (i == 4 || i == 6 || i == 8 || i == 10) text += '-';
    std::snprintf(digits, sizeof(digits), "%02x", id[i]);
    text += digits;
  }
  return text;
}

struct SharingRow {
  CudaSharing sharing;
  const char* name;
};
constexpr SharingRow kSharings[] = {{CudaSharing::kLegacy, "legacy"},
                                    {CudaSharing::kDescriptor, "vmm"},
                                    {CudaSharing::kFabric, "fabric"}};
static_assert(std::size(kSharings) == kDeviceSharings);

}  // namespace

const char* name_of(CudaSharing sharing) {
  return std::ranges::find(kSharings, sharing, &SharingRow::sharing)->name;
}

Result<std::vector<CudaSharing>> parse_device_sharing(const std::string& text) {
  std::vector<CudaSharing> chosen;
  for (const SharingRow& row : kSharings)
    if (text == "auto" || text == row.name) chosen.push_back(row.sharing);
  if (chosen.empty())
    return error("F100", "--device-sharing \"" + text + "\" is not auto, legacy, vmm or fabric");
  return chosen;
}

WantedDevice untried(const DeviceId& id) {
  WantedDevice device{id, {}, {}};
  for (const SharingRow& row : kSharings)
    if (row.sharing != CudaSharing::kLegacy)
      device.why_not[static_cast<size_t>(row.sharing) - 1] = "it has not tried to open it";
  return device;
}

// Creating and destroying a stream on each GPU does all of CUDA's initialisation.
void Devices::look() {
  if (looks_.joinable()) return;
  looks_ = std::thread([this] {
    const Result<const CudaPlugin*> plugin = system_cuda_plugin();
    none_ = plugin.status();
    if (plugin.ok()) {
      Result<std::vector<CudaDeviceInfo>> devices = cuda_devices(*plugin.value());
      none_ = devices.status();
      if (devices.ok()) devices_ = devices.take();
      plugin_ = plugin.value();
    }
    for (uint32_t device = 0; device < devices_.size(); ++device)
      if (CudaStream* stream = nullptr;
          plugin_->table->create_stream(device, &stream) == CudaResult::kOk)
        plugin_->table->destroy_stream(stream);
    has_looked_.store(true, std::memory_order_release);
  });
}

Devices::~Devices() {
  if (looks_.joinable()) looks_.join();
}

Status Devices::wait() {
  look();
  const Nanos deadline = monotonic_now() + kPatience;
  while (!has_looked_.load(std::memory_order_acquire)) {
    if (monotonic_now() >= deadline)
      return error("D624", "CUDA has not begun in " + std::to_string(kPatience / kSecond) + " s");
    breathe_();
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return none_;
}

Result<uint32_t> Devices::find(const DeviceId& wanted) const {
  for (uint32_t device = 0; device < devices_.size(); ++device)
    if (std::ranges::equal(devices_[device].uuid, wanted)) return device;
  return error("D622", "this agent cannot use the GPU " + text_of(wanted) + " that a rank uses");
}

Result<std::shared_ptr<PinnedSegment>> Devices::pin(const std::shared_ptr<Segment>& segment) {
  std::erase_if(pinned_, [](const auto& known) { return known.expired(); });
  for (const auto& known : pinned_)
    if (auto pinned = known.lock(); pinned != nullptr && pinned->segment() == segment.get())
      return pinned;
  auto pinned = PinnedSegment::make(*plugin_, segment);
  if (pinned.ok()) pinned_.push_back(pinned.value());
  return pinned;
}

Result<std::unique_ptr<DeviceTrial>> Devices::make_trial(const DeviceId& id) {
  GRADBUS_RETURN_IF_ERROR(wait());
  const Result<uint32_t> device = find(id);
  if (!device.ok()) return device.status();
  return DeviceTrial::make(*plugin_, device.value(), sharings_);
}

// Chooses the first way in which every rank can open memory.
Status Devices::choose_sharing(const std::vector<std::optional<WantedDevice>>& wanted,
                               DevicePlan& plan) const {
  for (const auto& rank : wanted) GRADBUS_RETURN_IF_ERROR(rank->problem);
  for (const CudaSharing sharing : sharings_) {
    const size_t index = static_cast<size_t>(sharing) - 1;
    const auto refuses = std::ranges::find_if(
        wanted, [&](const auto& rank) { return !rank->why_not[index].empty(); });
    plan.sharing = sharing;
    if (refuses == wanted.end()) return {};
    plan.not_shared_by += (plan.not_shared_by.empty() ? "" : "; ") + std::string(name_of(sharing)) +
                          ": local rank " + std::to_string(refuses - wanted.begin()) + ": " +
                          (*refuses)->why_not[index];
  }
  return error("D628", plan.who + ": not all ranks of this node can open memory of its agent: " +
                           plan.not_shared_by);
}

Result<std::shared_ptr<DeviceTensor>> Devices::make(
    const std::vector<std::optional<WantedDevice>>& wanted, DevicePlan plan,
    const std::shared_ptr<Segment>& segment) {
  const auto in_host_memory =
      std::ranges::find_if(wanted, [](const auto& device) { return !device; });
  if (in_host_memory != wanted.end())
    return error("D628", plan.who + ": local rank " +
                             std::to_string(in_host_memory - wanted.begin()) +
                             " has its elements in memory of the host");
  if (wanted.size() > kCudaRankBuffersMax)
    return error("D628", plan.who + ": " + std::to_string(wanted.size()) +
                             " ranks on one node; a GPU sums " +
                             std::to_string(kCudaRankBuffersMax));
  GRADBUS_RETURN_IF_ERROR(wait());
  for (const auto& rank : wanted) {
    const Result<uint32_t> device = find(rank->id);
    if (!device.ok()) return device.status();
    plan.devices.push_back(device.value());
  }
  GRADBUS_RETURN_IF_ERROR(choose_sharing(wanted, plan));
  if (plan.leaves_node) {
    auto pinned = pin(segment);
    if (!pinned.ok()) return pinned.status();
    plan.pinned = pinned.take();
  }
  // GPUs take turns in summing.
  plan.home = plan.devices[plan.home_is_first ? 0 : made_++ % plan.devices.size()];
  return DeviceTensor::make(*plugin_, std::move(plan));
}

}  // namespace gradbus
