// GPU memory that the agent offers this rank to open, before tensors are registered there: an agent
// creates a tensor's memory for all ranks of its node. Each GPU is asked for once.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "client_lib/src/agent_socket.h"
#include "client_lib/src/tensor.h"

namespace gradbus {

// One piece of memory for each way in which the agent can share it, and an event.
struct DeviceTrialOffer {
  std::vector<SharedDeviceMemory> memory;
  DeviceShare event;
  std::atomic<bool> done{false};  // stored after the other members
};

class DeviceOffers {
 public:
  explicit DeviceOffers(AgentSocket& socket) : socket_(socket) {}

  // Asks for an offer, which arrives later. Empty and done in a world of one: there is nothing to
  // share.
  Result<std::shared_ptr<DeviceTrialOffer>> ask(const DeviceId& device);
  // The agent's offer. With the socket's lock.
  Status take(Packet& packet);
  // One reason for each memory of the offer; "": it could be opened.
  Status report(const DeviceId& device, const DeviceTrialOffer& offer,
                const std::vector<std::string>& why_not);

 private:
  AgentSocket& socket_;
  std::map<uint32_t, std::shared_ptr<DeviceTrialOffer>> asked_;  // by request
};

// Waits for the agent's offer, which is empty if it cannot share memory of this GPU.
Result<std::shared_ptr<DeviceTrialOffer>> try_device(Session& session, const DeviceId& device);

}  // namespace gradbus
