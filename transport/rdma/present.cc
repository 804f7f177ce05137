#include <algorithm>
#include <array>

#include "common/errors.h"
#include "transport/rdma/queue_pair.h"
#include "transport/rdma/rdma.h"
#include "transport/rdma/row.h"

namespace gradbus {
namespace {

constexpr size_t kTrialBytes = 1 << 20;
constexpr uint32_t kTrialPosts = 256;

std::string port_text(const RdmaPort& port) {
  return std::string(port.active ? "active" : "down") +
         (port.ethernet ? ", RoCE" : ", InfiniBand") + ", MTU " +
         std::to_string(mtu_bytes(port.mtu)) + ", " + std::to_string(port.gids.size()) + " GIDs";
}

RdmaFinding port_finding(const RdmaPort& port) {
  const bool usable = port.active && !port.gids.empty();
  std::string next;
  if (!port.active) next = "bring its network interface up: ip link set DEV up; rdma link";
  if (port.active && port.gids.empty()) next = "give its network interface an address";
  return {usable, "rdma " + port.device + "/" + std::to_string(port.number), port_text(port), next};
}

// Splits "GB-D606 ...: what | next: advice" into its two parts.
RdmaFinding bad_finding(const std::string& name, const Status& status) {
  const std::string& text = status.message();
  const size_t next = text.find(" | next: ");
  if (next == std::string::npos) return {false, name, text, ""};
  return {false, name, text.substr(0, next), text.substr(next + 9)};
}

RdmaFinding trial(const VerbsLibrary& verbs, const SocketAddress& near) {
  const auto device = RdmaDevice::open(verbs, near);
  if (!device.ok()) return bad_finding("rdma place", device.status());
  std::vector<std::byte> memory(kTrialBytes);
  const auto registration = device.value()->register_memory(memory);
  if (!registration.ok()) return bad_finding("rdma memory", registration.status());
  const auto pair = QueuePair::create(*device.value(), kTrialPosts);
  if (!pair.ok()) return bad_finding("rdma queue pair", pair.status());
  return {true, "rdma place",
          describe(device.value()->place()) + "; memory and a queue pair can be had", ""};
}

}  // namespace

Status rdma_available() {
  const Result<const VerbsLibrary*> verbs = system_verbs();
  GRADBUS_RETURN_IF_ERROR(verbs.status());
  const Result<std::vector<RdmaPort>> ports = survey_ports(*verbs.value());
  GRADBUS_RETURN_IF_ERROR(ports.status());
  return choose_place(ports.value(), {}).status();
}

Result<std::unique_ptr<Transport>> create_rdma(const TransportOptions& options) {
  const Result<const VerbsLibrary*> verbs = system_verbs();
  GRADBUS_RETURN_IF_ERROR(verbs.status());
  return RdmaTransport::create(*verbs.value(), options);
}

std::vector<RdmaFinding> examine_rdma(const std::string& bind_address) {
  const Result<const VerbsLibrary*> verbs = system_verbs();
  if (!verbs.ok()) return {bad_finding("rdma", verbs.status())};
  const Result<std::vector<RdmaPort>> ports = survey_ports(*verbs.value());
  if (!ports.ok()) return {bad_finding("rdma", ports.status())};
  std::vector<RdmaFinding> findings;
  for (const RdmaPort& port : ports.value()) findings.push_back(port_finding(port));
  const Result<SocketAddress> near = resolve_bind_address(bind_address);
  if (!near.ok()) return {bad_finding("rdma", near.status())};
  findings.push_back(trial(*verbs.value(), near.value()));
  return findings;
}

}  // namespace gradbus
