// Which device, port and address (GID) a transport uses. Start-up only: it opens every device.
//
// On Ethernet (RoCE) a GID is an IP address, so the one that equals the address the agent listens
// on is the right one: whoever reaches us over TCP reaches us over RDMA by the same route. Where no
// GID has that address (InfiniBand; an agent on 127.0.0.1) the first active port is taken, and on
// it RoCE v2 before v1 and IPv4 before IPv6, since all agents of a job must choose alike.
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

// Where the queue pairs of a transport live.
struct RdmaPlace {
  std::string device;
  uint8_t port = 0;
  bool ethernet = false;
  uint16_t lid = 0;
  ibv_mtu mtu = IBV_MTU_1024;
  ibv_gid_entry gid{};
};

// Every port of every device. GB-D607 when there is no device.
Result<std::vector<RdmaPort>> survey_ports(const VerbsLibrary& verbs);

// GB-D607 when no port is active. `near` is the address that the agent listens on.
Result<RdmaPlace> choose_place(std::span<const RdmaPort> ports, const SocketAddress& near);

// "rxe0 port 1, RoCE v2 GID 1 ::ffff:10.9.0.1, MTU 1024"
std::string describe(const RdmaPlace& place);
// 256 to 4096
uint32_t mtu_bytes(ibv_mtu mtu);

// An open device; closed at the end. Null when it cannot be opened: errno says why.
Verbs<ibv_context> open_device(const VerbsLibrary& verbs, const std::string& name);

}  // namespace gradbus
