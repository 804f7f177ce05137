#include "worker_agent/clients/device_trials.h"

#include "common/utf8.h"
#include "shared_memory/attach_socket.h"

namespace gradbus {
namespace {

// A machine has at most 16 GPUs; a client that names more of them invents them.
constexpr size_t kTrialsMax = 64;

bool fits_a_line(const std::string& text) {
  for (const unsigned char c : text)
    if (c < 0x20 || c == 0x7f) return false;
  return is_utf8(text);
}

}  // namespace

Result<DeviceTrials::Begun> DeviceTrials::begin(const TryDevicePacket& packet, Devices& devices) {
  if (tried_.size() >= kTrialsMax && !tried_.contains(packet.device))
    return bad_packet("a trial of more than " + std::to_string(kTrialsMax) + " GPUs");
  Tried& device = tried_[packet.device];
  device = {};
  Begun begun{make_packet<DeviceTrialPacket>(packet.header.request), {}};
  begun.answer.device = packet.device;
  auto trial = devices.make_trial(packet.device);
  device.problem = trial.status();
  if (!trial.ok()) return begun;
  device.trial = trial.take();
  device.why_not = device.trial->why_not();
  begun.answer.event = device.trial->event();
  for (const SharedMemory& shared : device.trial->memory()) {
    begun.answer.memory[begun.answer.count++] = to_packet(shared.share);
    if (shared.descriptor.valid()) begun.descriptors.push_back(shared.descriptor.get());
    device.why_not[static_cast<size_t>(shared.share.sharing) - 1] = "it has not said what it found";
  }
  return begun;
}

Status DeviceTrials::end(const DeviceTriedPacket& packet) {
  const auto found = tried_.find(packet.device);
  if (found == tried_.end() || found->second.trial == nullptr)
    return bad_packet("the end of a trial that was not begun");
  for (const SharedMemory& shared : found->second.trial->memory()) {
    const size_t index = static_cast<size_t>(shared.share.sharing) - 1;
    const std::string said = get_text(packet.why_not[index]);
    found->second.why_not[index] = fits_a_line(said) ? said : "for a reason that is no text";
  }
  found->second.trial.reset();
  return {};
}

WantedDevice DeviceTrials::wanted(const DeviceId& id) const {
  const auto tried = tried_.find(id);
  if (tried == tried_.end()) return untried(id);
  return WantedDevice{id, tried->second.why_not, tried->second.problem};
}

}  // namespace gradbus
