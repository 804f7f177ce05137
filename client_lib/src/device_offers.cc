#include "client_lib/src/device_offers.h"

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

Result<std::shared_ptr<DeviceTrialOffer>> DeviceOffers::ask(const DeviceId& device) {
  const auto offer = std::make_shared<DeviceTrialOffer>();
  if (!socket_.is_open()) {
    offer->done.store(true, std::memory_order_release);
    return offer;
  }
  const std::lock_guard lock(socket_.lock());
  auto packet = make_packet<TryDevicePacket>(socket_.next_request());
  packet.device = device;
  GRADBUS_RETURN_IF_ERROR(socket_.send(packet));
  asked_[packet.header.request] = offer;
  return offer;
}

Status DeviceOffers::take(Packet& packet) {
  const Result<DeviceTrialPacket> trial = packet.as<DeviceTrialPacket>();
  if (!trial.ok()) return trial.status();
  auto asked = asked_.extract(packet.header.request);
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

Status DeviceOffers::report(const DeviceId& device, const DeviceTrialOffer& offer,
                            const std::vector<std::string>& why_not) {
  if (!socket_.is_open() || offer.memory.empty()) return {};
  auto packet = make_packet<DeviceTriedPacket>();
  packet.device = device;
  for (size_t i = 0; i < offer.memory.size(); ++i)
    set_text(packet.why_not[static_cast<size_t>(offer.memory[i].memory.sharing) - 1], why_not[i]);
  const std::lock_guard lock(socket_.lock());
  return socket_.send(packet);
}

Result<std::shared_ptr<DeviceTrialOffer>> try_device(Session& session, const DeviceId& device) {
  auto offer = session.device_offers().ask(device);
  if (!offer.ok()) return offer;
  GRADBUS_RETURN_IF_ERROR(session.waits().until_stored(offer.value()->done,
                                                       session.options().start_timeout, kTrialSleep,
                                                       "its agent's memory of a GPU"));
  return offer;
}

}  // namespace gradbus
