// The part of the conductor that tests which GPU memory attached processes can open.
#include "common/log.h"
#include "common/utf8.h"
#include "worker_agent/control/conductor.h"

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

Status Conductor::on_try_device(AttachedClient& client, const TryDevicePacket& packet) {
  if (client.tried.size() >= kTrialsMax && !client.tried.contains(packet.device))
    return bad_packet("a trial of more than " + std::to_string(kTrialsMax) + " GPUs");
  AttachedClient::TriedDevice& device = client.tried[packet.device];
  device = {};
  auto answer = make_packet<DeviceTrialPacket>(packet.header.request);
  answer.device = packet.device;
  std::vector<int> descriptors;
  auto trial = devices_.make_trial(packet.device);
  device.problem = trial.status();
  if (trial.ok()) {
    device.trial = trial.take();
    device.why_not = device.trial->why_not();
    answer.event = device.trial->event();
    for (const SharedMemory& shared : device.trial->memory()) {
      answer.memory[answer.count++] = to_packet(shared.share);
      if (shared.descriptor.valid()) descriptors.push_back(shared.descriptor.get());
      device.why_not[static_cast<size_t>(shared.share.sharing) - 1] =
          "it has not said what it found";
    }
  }
  client.send(answer, descriptors);
  return {};
}

Status Conductor::on_device_tried(AttachedClient& client, const DeviceTriedPacket& packet) {
  const auto found = client.tried.find(packet.device);
  if (found == client.tried.end() || found->second.trial == nullptr)
    return bad_packet("the end of a trial that was not begun");
  for (const SharedMemory& shared : found->second.trial->memory()) {
    const size_t index = static_cast<size_t>(shared.share.sharing) - 1;
    const std::string said = get_text(packet.why_not[index]);
    found->second.why_not[index] = fits_a_line(said) ? said : "for a reason that is no text";
  }
  found->second.trial.reset();
  return {};
}

}  // namespace gradbus
