// RDMA over Ethernet: what the network below it is set to, as far as /sys says.
#include <cstdlib>

#include "cli/doctor/doctor_findings.h"

namespace gradbus {
namespace {

// What the kernel sets aside for headers when it derives a RoCE MTU from an interface's.
constexpr long kHeaderBytes = 96;
constexpr long kMtuMax = 4096;
constexpr long kMtuMin = 256;
// Of eight; what vendors' guides give to RoCE.
constexpr char kPriority[] = "3";

long roce_mtu(long interface_mtu) {
  long mtu = kMtuMax;
  while (mtu > kMtuMin && mtu > interface_mtu - kHeaderBytes) mtu /= 2;
  return mtu;
}

Finding mtu_finding(const std::string& interface, const std::string& folder) {
  const std::string text = first_line(folder + "/mtu");
  const long mtu = std::strtol(text.c_str(), nullptr, 10);
  const std::string name = "roce mtu " + interface;
  if (mtu <= 0) return {Level::kMissing, name, "cannot be read", "see: ip link show " + interface};
  const std::string value =
      "interface " + text + ", so RDMA packets of " + std::to_string(roce_mtu(mtu));
  if (roce_mtu(mtu) == kMtuMax) return {Level::kOk, name, value, ""};
  return {Level::kWarn, name, value,
          "where all switches allow it, on all nodes: ip link set " + interface + " mtu 4200"};
}

// Two switches of mlx5's driver: tell the sender that a packet was marked, and slow down when told.
Finding ecn_finding(const std::string& interface, const std::string& folder) {
  const std::string name = "roce ecn " + interface;
  std::string off;
  for (const char* side : {"roce_np", "roce_rp"}) {
    const std::string file = folder + "/ecn/" + side + "/enable/" + kPriority;
    const std::string state = first_line(file);
    if (state.empty())
      return {Level::kMissing, name, "the driver does not say in /sys",
              "on a network with congestion turn ECN on in cards and switches (driver's manual)"};
    if (state != "1") off += (off.empty() ? "echo 1 > " : "; echo 1 > ") + file;
  }
  if (!off.empty())
    return {Level::kWarn, name, std::string("off for priority ") + kPriority, "as root: " + off};
  return {Level::kOk, name, std::string("on for priority ") + kPriority, ""};
}

Finding pfc_finding(const std::string& interface) {
  return {Level::kMissing, "roce pfc " + interface, "not in /sys",
          "compare on all nodes and switches: dcb pfc show dev " + interface + " (or mlnx_qos -i " +
              interface + ")"};
}

}  // namespace

std::vector<Finding> check_roce(const std::string& infiniband, const std::string& net) {
  std::vector<Finding> findings;
  for (const std::string& device : names_in(infiniband)) {
    const std::string ports = infiniband + "/" + device + "/ports";
    for (const std::string& port : names_in(ports)) {
      if (first_line(ports + "/" + port + "/link_layer") != "Ethernet") continue;
      const std::string interface = first_line(ports + "/" + port + "/gid_attrs/ndevs/0");
      if (interface.empty()) continue;
      const std::string folder = net + "/" + interface;
      findings.push_back(mtu_finding(interface, folder));
      findings.push_back(ecn_finding(interface, folder));
      findings.push_back(pfc_finding(interface));
    }
  }
  return findings;
}

}  // namespace gradbus
