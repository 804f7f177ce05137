#include "cli/cluster/link_lab.h"

#include <fcntl.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "cli/options/run_options.h"
#include "cli/process/system_tool.h"
#include "common/check.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr char kNetwork[] = "198.18.0.";
constexpr int kCoordinatorHost = 254;
static_assert(kLinkAgentsMax < kCoordinatorHost, "each address has one owner");

// What a failing step needs of the kernel, and what to do where it is not there.
struct Need {
  const char* what;
  const char* next;
};
constexpr Need kForCables = {
    "the kernel's modules veth and bridge",
    "modprobe veth bridge; where the kernel has none of them, leave out --link"};
constexpr Need kForRate = {"the kernel's module sch_tbf",
                           "modprobe sch_tbf; where the kernel does not have it, leave out --link"};
constexpr Need kForDelay = {
    "the kernel's module sch_netem",
    "modprobe sch_netem; where the kernel does not have it (CONFIG_NET_SCH_NETEM), leave out the "
    "delay: --link RATE"};

Status cannot_unshare(int reason) {
  return error("H203", std::string("--link cannot make a network namespace: ") + strerror(reason),
               reason == EPERM ? "run it as root: sudo gradbus run ..., or where user namespaces "
                                 "are allowed: unshare --map-root-user gradbus run ..."
                               : "raise /proc/sys/user/max_net_namespaces and ulimit -n");
}

// By a thread that ends right after, because no thread needs to find the way back then.
Result<Fd> new_namespace() {
  int fd = -1;
  int reason = 0;
  std::thread([&] {
    if (unshare(CLONE_NEWNET) == 0) fd = open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC);
    reason = errno;
  }).join();
  if (fd < 0) return cannot_unshare(reason);
  return Fd(fd);
}

// A user's PATH often has no sbin.
Result<std::string> find_iproute(const char* name) {
  const char* path = std::getenv("PATH");
  Result<std::string> found =
      find_program(name, std::string(path == nullptr ? "" : path) + ":/usr/sbin:/sbin");
  if (found.ok()) return found;
  return error("H203", std::string("--link needs the program ") + name + ", which is not on PATH",
               "install iproute2 (apt install iproute2, dnf install iproute iproute-tc)");
}

// Runs ip's or tc's `commands` inside a namespace.
Status apply(const char* program, const std::string& commands, const Fd& netns, const Fd* other,
             const Need& need, Nanos until) {
  Result<std::string> path = find_iproute(program);
  if (!path.ok()) return path.status();
  SystemTool tool{{path.take(), "-batch", "-"}, commands, netns.get()};
  if (other != nullptr) tool.passed_fd = other->get();
  const Status done = run_tool(tool, until);
  if (done.ok()) return {};
  return error("H203", std::string("--link needs ") + need.what + ": " + done.message(), need.next);
}

std::string host_address(int host) { return kNetwork + std::to_string(host); }

std::string port_name(size_t agent) { return "port" + std::to_string(agent); }

// The other end of the cable appears in the bridge's namespace, which `ip` gets as descriptor 3.
std::string agent_cable(size_t agent, const std::string& address, uint64_t packet_bytes_max) {
  const std::string mtu = " mtu " + std::to_string(kLinkMtu);
  return "link set lo up\n"
         "link add link0" +
         mtu + " type veth peer name " + port_name(agent) + mtu +
         " netns /proc/self/fd/3\n"
         "link set link0 gso_max_size " +
         std::to_string(packet_bytes_max) +
         " up\n"
         "address add " +
         address + "/24 dev link0\n";
}

std::string bridge_cables(size_t agents, const std::string& address) {
  std::string commands =
      "link set lo up\n"
      "link add br0 mtu " +
      std::to_string(kLinkMtu) +
      " type bridge stp_state 0 forward_delay 0 mcast_snooping 0\n"
      "address add " +
      address +
      "/24 dev br0\n"
      "link set br0 up\n";
  for (size_t i = 0; i < agents; ++i) commands += "link set " + port_name(i) + " master br0 up\n";
  return commands;
}

// A nanosecond where timers are precise, else the length of a tick.
Nanos timer_resolution() {
  timespec resolution{};
  clock_getres(CLOCK_MONOTONIC, &resolution);
  return resolution.tv_sec * kSecond + resolution.tv_nsec;
}

uint64_t burst_bytes_of(const LinkSpec& link) { return link_burst_bytes(link, timer_resolution()); }

}  // namespace

Result<LinkLab> LinkLab::create(const std::vector<LinkSpec>& links) {
  if (links.empty() || links.size() > static_cast<size_t>(kLinkAgentsMax))
    return error("H200",
                 "--link with " + std::to_string(links.size()) + " agents; 250 are the most",
                 "use fewer --agents");
  const Nanos until = monotonic_now() + kLinkStart;
  LinkLab lab;
  GRADBUS_RETURN_IF_ERROR(lab.open_namespaces(links.size()));
  GRADBUS_RETURN_IF_ERROR(lab.lay_cables(links, until));
  GRADBUS_RETURN_IF_ERROR(lab.limit_cables(links, until));
  GRADBUS_RETURN_IF_ERROR(lab.delay_cables(links, until));
  return lab;
}

Status LinkLab::open_namespaces(size_t agents) {
  for (size_t i = 0; i <= agents; ++i) {
    Result<Fd> netns = new_namespace();
    if (!netns.ok()) return netns.status();
    (i < agents ? agents_.emplace_back() : bridge_) = netns.take();
  }
  return {};
}

Status LinkLab::lay_cables(const std::vector<LinkSpec>& links, Nanos until) const {
  for (size_t i = 0; i < agents_.size(); ++i) {
    const std::string own = address(static_cast<int>(i));
    const uint64_t packet_bytes_max = link_packet_bytes_max(burst_bytes_of(links[i]));
    GRADBUS_RETURN_IF_ERROR(apply("ip", agent_cable(i, own, packet_bytes_max), agents_[i], &bridge_,
                                  kForCables, until));
  }
  return apply("ip", bridge_cables(agents_.size(), coordinator_address()), bridge_, nullptr,
               kForCables, until);
}

Status LinkLab::limit_cables(const std::vector<LinkSpec>& links, Nanos until) const {
  std::string ports;
  for (size_t i = 0; i < agents_.size(); ++i) {
    const uint64_t burst_bytes = burst_bytes_of(links[i]);
    GRADBUS_RETURN_IF_ERROR(apply("tc", rate_command("link0", links[i], burst_bytes), agents_[i],
                                  nullptr, kForRate, until));
    ports += rate_command(port_name(i), links[i], burst_bytes);
  }
  return apply("tc", ports, bridge_, nullptr, kForRate, until);
}

Status LinkLab::delay_cables(const std::vector<LinkSpec>& links, Nanos until) const {
  std::string ports;
  for (size_t i = 0; i < agents_.size(); ++i)
    if (links[i].delay > 0) ports += delay_command(port_name(i), links[i]);
  return ports.empty() ? Status() : apply("tc", ports, bridge_, nullptr, kForDelay, until);
}

std::string LinkLab::address(int agent) const { return host_address(agent + 1); }

std::string LinkLab::coordinator_address() const { return host_address(kCoordinatorHost); }

}  // namespace gradbus
