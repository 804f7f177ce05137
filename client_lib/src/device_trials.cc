// What this process can open of a GPU's memory that its agent has: asked once for each GPU, before
// tensors are registered there, since an agent makes a tensor's memory for all ranks of its node.
#include "client_lib/src/session.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr Nanos kTrialSleep = 50 * kMillisecond;

bool is_possible(const DeviceMemory& memory) {
  switch (memory.sharing) {
    case DeviceSharing::kLegacy: return true;
    case DeviceSharing::kDescriptor:
    case DeviceSharing::kFabric: return memory.bytes > 0;
  }
  return false;
}

}  // namespace

Result<SharedDeviceMemory> take_device_memory(const DeviceMemory& memory, std::vector<Fd>& fds) {
  SharedDeviceMemory taken{memory, {}};
  const bool by_descriptor = memory.sharing == DeviceSharing::kDescriptor;
  if (!is_possible(memory) || (by_descriptor && fds.empty()))
    return bad_packet("memory of a GPU is shared in way " +
                      std::to_string(static_cast<uint32_t>(memory.sharing)) + " with " +
                      std::to_string(fds.size()) + " descriptors");
  if (by_descriptor) {
    taken.descriptor = std::move(fds.front());
    fds.erase(fds.begin());
  }
  return taken;
}

Result<std::shared_ptr<DeviceTrialOffer>> Session::try_device(const DeviceId& device) {
  const auto offer = std::make_shared<DeviceTrialOffer>();
  {
    const std::lock_guard lock(control_);
    if (!connection_) return offer;  // alone: there is nothing to share
    auto packet = make_packet<TryDevicePacket>(next_request_++);
    packet.device = device;
    GRADBUS_RETURN_IF_ERROR(connection_->send(&packet, sizeof(packet)));
    trials_[packet.header.request] = offer;
  }
  const Nanos deadline = monotonic_now() + options_.start_timeout;
  while (!offer->done.load(std::memory_order_acquire)) {
    progress();
    if (offer->done.load(std::memory_order_acquire)) break;
    GRADBUS_RETURN_IF_ERROR(failure());
    if (monotonic_now() >= deadline)
      return error("P110", "rank " + std::to_string(rank()) + " waited " +
                               std::to_string(options_.start_timeout / kSecond) +
                               " s for its agent's memory of a GPU");
    connection_->wait(kTrialSleep);
  }
  return offer;
}

Status Session::device_tried(const DeviceId& device, const DeviceTrialOffer& offer,
                             const std::vector<std::string>& why_not) {
  const std::lock_guard lock(control_);
  if (!connection_ || offer.memory.empty()) return {};
  auto packet = make_packet<DeviceTriedPacket>();
  packet.device = device;
  for (size_t i = 0; i < offer.memory.size(); ++i)
    set_text(packet.why_not[static_cast<size_t>(offer.memory[i].memory.sharing) - 1], why_not[i]);
  return connection_->send(&packet, sizeof(packet));
}

Status Session::take_trial(Packet& packet) {
  const Result<DeviceTrialPacket> trial = packet.as<DeviceTrialPacket>();
  if (!trial.ok()) return trial.status();
  auto asked = trials_.extract(packet.header.request);
  if (asked.empty()) return {};
  if (trial.value().count > kDeviceSharings)
    return bad_packet("memory of a GPU is shared in " + std::to_string(trial.value().count) +
                      " ways");
  DeviceTrialOffer& offer = *asked.mapped();
  for (uint32_t i = 0; i < trial.value().count; ++i) {
    auto memory = take_device_memory(trial.value().memory[i], packet.fds);
    if (!memory.ok()) return memory.status();
    offer.memory.push_back(memory.take());
  }
  if (!packet.fds.empty()) return bad_packet("a trial has more descriptors than it needs");
  offer.event = trial.value().event;
  offer.done.store(true, std::memory_order_release);
  return {};
}

}  // namespace gradbus
