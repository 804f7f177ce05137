#include <arpa/inet.h>
#include <dlfcn.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cstdlib>
#include <map>

#include "cli/doctor/doctor_findings.h"
#include "common/units.h"
#include "transport/rdma/row.h"

namespace gradbus {
namespace {

std::string address_text(const sockaddr* address) {
  char text[INET6_ADDRSTRLEN] = {};
  const void* bytes = nullptr;
  if (address != nullptr && address->sa_family == AF_INET)
    bytes = &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  if (address != nullptr && address->sa_family == AF_INET6)
    bytes = &reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr;
  if (bytes == nullptr) return "";
  return inet_ntop(address->sa_family, bytes, text, sizeof(text)) == nullptr ? "" : text;
}

// Interfaces that are up, each with its addresses.
std::map<std::string, std::string> addresses_by_interface() {
  std::map<std::string, std::string> found;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return found;
  for (const ifaddrs* entry = all; entry != nullptr; entry = entry->ifa_next) {
    const std::string text = address_text(entry->ifa_addr);
    if (text.empty() || (entry->ifa_flags & IFF_UP) == 0) continue;
    std::string& words = found[entry->ifa_name];
    words += (words.empty() ? "" : ", ") + text;
  }
  freeifaddrs(all);
  return found;
}

// Virtual interfaces have no speed, or say -1.
std::string speed_text(const std::string& interface) {
  const std::string megabits = first_line("/sys/class/net/" + interface + "/speed");
  const long number = std::strtol(megabits.c_str(), nullptr, 10);
  if (number <= 0) return "";
  return number % 1000 == 0 ? ", " + std::to_string(number / 1000) + " Gbit/s"
                            : ", " + megabits + " Mbit/s";
}

Finding library(const char* file, const char* what, const char* next) {
  void* handle = dlopen(file, RTLD_LAZY | RTLD_LOCAL);
  if (handle == nullptr) return {Level::kMissing, file, std::string("not found: no ") + what, next};
  dlclose(handle);
  return {Level::kOk, file, "can be loaded", ""};
}

}  // namespace

std::vector<Finding> check_network() {
  std::vector<Finding> findings;
  for (const auto& [interface, addresses] : addresses_by_interface())
    findings.push_back({Level::kOk, "nic " + interface, addresses + speed_text(interface), ""});
  if (findings.empty())
    findings.push_back({Level::kMissing, "nic", "no interface is up",
                        "bring up at least the loopback: ip link set lo up", true});
  return findings;
}

// No RDMA is no defect: it is missing, and TCP is used.
std::vector<Finding> check_rdma() {
  if (names_in("/sys/class/infiniband").empty())
    return {{Level::kMissing, "rdma", "no device", "nothing: TCP is used between nodes"}};
  const char* bind = std::getenv("GRADBUS_AGENT_BIND");
  std::vector<Finding> findings;
  for (const RdmaFinding& one : examine_rdma(bind == nullptr ? "127.0.0.1" : bind))
    findings.push_back({one.good ? Level::kOk : Level::kWarn, one.name, one.value, one.next});
  for (Finding& one : check_roce("/sys/class/infiniband", "/sys/class/net"))
    findings.push_back(std::move(one));
  return findings;
}

std::vector<Finding> check_libraries() {
  return {library("libibverbs.so.1", "RDMA", "for RDMA: apt install libibverbs1"),
          library("libcuda.so.1", "CUDA", "for GPUs: install the NVIDIA driver"),
          library("libnccl.so.2", "NCCL", "for GPUs: install libnccl2")};
}

}  // namespace gradbus
