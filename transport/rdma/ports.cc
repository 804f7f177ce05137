#include "transport/rdma/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <memory>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr size_t kGidsMax = 256;  // GIDs examined per device

using GidBytes = std::array<uint8_t, 16>;

// An IPv4 address appears as a GID in its IPv6-mapped form.
constexpr GidBytes kMappedPrefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
constexpr size_t kMappedPrefixBytes = 12;

GidBytes gid_of(const SocketAddress& address) {
  GidBytes gid = kMappedPrefix;
  if (address.storage.ss_family == AF_INET) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(&address.storage);
    std::memcpy(gid.data() + kMappedPrefixBytes, &v4->sin_addr, sizeof(v4->sin_addr));
  } else {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
    std::memcpy(gid.data(), &v6->sin6_addr, gid.size());
  }
  return gid;
}

bool is_mapped(const ibv_gid_entry& entry) {
  return std::memcmp(entry.gid.raw, kMappedPrefix.data(), kMappedPrefixBytes) == 0;
}

// Larger is better; ports.h gives the order.
int rank_of(const ibv_gid_entry& entry, const GidBytes& near) {
  const bool same = std::memcmp(entry.gid.raw, near.data(), near.size()) == 0;
  const bool v2 = entry.gid_type == IBV_GID_TYPE_ROCE_V2;
  return (same ? 4 : 0) + (v2 ? 2 : 0) + (is_mapped(entry) ? 1 : 0);
}

const ibv_gid_entry* best_gid(const RdmaPort& port, const GidBytes& near) {
  const auto best =
      std::max_element(port.gids.begin(), port.gids.end(), [&](const auto& one, const auto& other) {
        return rank_of(one, near) < rank_of(other, near);
      });
  return best == port.gids.end() ? nullptr : &*best;
}

std::vector<ibv_gid_entry> gids_of(const VerbsLibrary& verbs, ibv_context* context) {
  std::vector<ibv_gid_entry> gids(kGidsMax);
  const ssize_t count =
      verbs.query_gid_table(context, gids.data(), gids.size(), 0, sizeof(ibv_gid_entry));
  gids.resize(count > 0 ? static_cast<size_t>(count) : 0);
  return gids;
}

void survey_device(const VerbsLibrary& verbs, ibv_context* context, const std::string& name,
                   std::vector<RdmaPort>& ports) {
  ibv_device_attr device{};
  if (verbs.query_device(context, &device) != 0) return;
  const std::vector<ibv_gid_entry> gids = gids_of(verbs, context);
  for (uint8_t number = 1; number <= device.phys_port_cnt && number != 0; ++number) {
    // An older library fills only the first part of the structure; the rest stays zero.
    ibv_port_attr attributes{};
    if (verbs.query_port(context, number, reinterpret_cast<_compat_ibv_port_attr*>(&attributes)) !=
        0)
      continue;
    RdmaPort port{name,
                  number,
                  attributes.state == IBV_PORT_ACTIVE,
                  attributes.link_layer == IBV_LINK_LAYER_ETHERNET,
                  attributes.lid,
                  attributes.active_mtu,
                  {}};
    std::copy_if(gids.begin(), gids.end(), std::back_inserter(port.gids),
                 [&](const auto& gid) { return gid.port_num == number; });
    ports.push_back(std::move(port));
  }
}

// The list owns its devices. Freeing it does not close devices that are open.
class DeviceList {
 public:
  explicit DeviceList(const VerbsLibrary& verbs) : verbs_(verbs) {
    devices_ = verbs.get_device_list(&count_);
  }
  ~DeviceList() {
    if (devices_ != nullptr) verbs_.free_device_list(devices_);
  }
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;

  std::span<ibv_device* const> devices() const {
    return {devices_, devices_ == nullptr ? 0 : static_cast<size_t>(count_)};
  }

 private:
  const VerbsLibrary& verbs_;
  int count_ = 0;
  ibv_device** devices_ = nullptr;
};

}  // namespace

Result<std::vector<RdmaPort>> survey_ports(const VerbsLibrary& verbs) {
  const DeviceList list(verbs);
  if (list.devices().empty())
    return error("D607", "this machine has no RDMA device",
                 "use --transport tcp; a driver that is not loaded: modprobe ib_uverbs");
  std::vector<RdmaPort> ports;
  std::string unusable;
  for (ibv_device* device : list.devices()) {
    const std::string name = verbs.get_device_name(device);
    const Verbs<ibv_context> context(verbs.open_device(device), verbs.close_device);
    if (context == nullptr)
      unusable += " " + name + " (" + std::strerror(errno) + ")";
    else
      survey_device(verbs, context.get(), name, ports);
  }
  if (!ports.empty()) return ports;
  return error("D607", "no RDMA device can be opened:" + unusable,
               "let this user open /dev/infiniband/uverbs*; systemd: deploy/systemd/rdma.conf");
}

Verbs<ibv_context> open_device(const VerbsLibrary& verbs, const std::string& name) {
  const DeviceList list(verbs);
  for (ibv_device* device : list.devices())
    if (verbs.get_device_name(device) == name)
      return {verbs.open_device(device), verbs.close_device};
  errno = ENODEV;
  return {nullptr, verbs.close_device};
}

Result<RdmaPlace> choose_place(std::span<const RdmaPort> ports, const SocketAddress& near) {
  const GidBytes wanted = gid_of(near);
  const RdmaPort* best = nullptr;
  for (const RdmaPort& port : ports) {
    const ibv_gid_entry* gid = best_gid(port, wanted);
    if (!port.active || gid == nullptr) continue;
    const bool nearer = best == nullptr || (rank_of(*gid, wanted) >= 4 &&
                                            rank_of(*best_gid(*best, wanted), wanted) < 4);
    if (nearer) best = &port;
  }
  if (best != nullptr)
    return RdmaPlace{best->device, best->number, best->ethernet,
                     best->lid,    best->mtu,    *best_gid(*best, wanted)};
  std::string seen;
  for (const RdmaPort& port : ports)
    seen += " " + port.device + "/" + std::to_string(port.number) +
            (port.active ? " (no GID)" : " (down)");
  return error("D607", "no RDMA port is active:" + seen,
               "ip link set DEV up; give it an address; rdma link");
}

uint32_t mtu_bytes(ibv_mtu mtu) { return 128u << static_cast<uint32_t>(mtu); }

std::string describe(const RdmaPlace& place) {
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(AF_INET6, place.gid.gid.raw, text, sizeof(text));
  const char* kind = place.gid.gid_type == IBV_GID_TYPE_ROCE_V2   ? "RoCE v2"
                     : place.gid.gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1"
                                                                  : "InfiniBand";
  return place.device + " port " + std::to_string(place.port) + ", " + kind + " GID " +
         std::to_string(place.gid.gid_index) + " " + text + ", MTU " +
         std::to_string(mtu_bytes(place.mtu));
}

}  // namespace gradbus
