// Chooses the device, port and address (GID) of a transport. Start-up only: it opens every device.
//
// On Ethernet (RoCE) a GID is an IP address. The GID that equals the agent's listen address is the
// right one: peers that reach the agent over TCP then reach it over RDMA by the same route. Some
// networks have no such GID (InfiniBand, or an agent on 127.0.0.1). Then the first active port is
// used, with RoCE v2 before v1 and IPv4 before IPv6. All agents of a job must choose alike.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "transport/net/address.h"
#include "transport/rdma/verbs_library.h"

namespace gradbus {

struct RdmaPort {
  std::string device;
  uint8_t number = 0;
  bool active = false;
  bool ethernet = false;
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  std::vector<ibv_gid_entry> gids;
};

// The device, port and GID that the queue pairs of a transport use.
struct RdmaPlace {
  std::string device;
  uint8_t port = 0;
  bool ethernet = false;
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  ibv_gid_entry gid{};
};

// Returns every port of every device. GB-D607 when there is no device.
Result<std::vector<RdmaPort>> survey_ports(const VerbsLibrary& verbs);

// Chooses by `near`, the address that the agent listens on. GB-D607 when no port is active.
Result<RdmaPlace> choose_place(std::span<const RdmaPort> ports, const SocketAddress& near);

// "rxe0 port 1, RoCE v2 GID 1 ::ffff:10.9.0.1, MTU 1024"
std::string describe(const RdmaPlace& place);
// 256 to 4096
uint32_t mtu_bytes(ibv_mtu mtu);

// Opens a device and closes it at the end. Null when it cannot be opened; errno has the reason.
Verbs<ibv_context> open_device(const VerbsLibrary& verbs, const std::string& name);

}  // namespace gradbus
