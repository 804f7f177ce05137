#include "transport/net/congestion.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "common/fd.h"

namespace gradbus {
namespace {

constexpr size_t kNameBytesMax = 16;  // TCP_CA_NAME_MAX

bool set(int fd, std::string_view name) {
  return setsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(),
                    static_cast<socklen_t>(name.size())) == 0;
}

Nanos round_trip(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return 0;
  return Nanos{info.tcpi_rtt} * 1000;
}

}  // namespace

std::string congestion_control_of(int fd) {
  std::array<char, kNameBytesMax> name{};
  socklen_t bytes = name.size();
  if (getsockopt(fd, IPPROTO_TCP, TCP_CONGESTION, name.data(), &bytes) != 0) return "";
  return {name.data(), strnlen(name.data(), name.size())};
}

CongestionControl CongestionControl::automatic(std::string_view system, std::string_view usable) {
  if (!system.starts_with("bbr") || usable.empty()) return {};
  return {std::string(usable), std::string(system)};
}

Result<CongestionControl> CongestionControl::choose(std::string_view wanted) {
  if (wanted == kSystem) return CongestionControl{};
  const Fd probe(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (wanted == kAuto) {
    const std::string system = congestion_control_of(probe.get());
    for (const std::string_view unpaced : {"cubic", "reno"})
      if (set(probe.get(), unpaced)) return automatic(system, unpaced);
    return CongestionControl{};
  }
  if (!wanted.empty() && wanted.size() < kNameBytesMax && set(probe.get(), wanted))
    return CongestionControl{std::string(wanted), std::string(wanted)};
  const std::string why = errno == EPERM ? "this user may not use it" : "the kernel has no such";
  return error(
      "F100", "congestion control \"" + std::string(wanted) + "\": " + why,
      "auto, system, or one of /proc/sys/net/ipv4/tcp_allowed_congestion_control; root may "
      "use those of tcp_available_congestion_control");
}

// If the kernel refuses, the system's choice stays, which also works.
void CongestionControl::begin(int fd) const {
  if (!near.empty()) (void)set(fd, near);
}

void CongestionControl::settle(int fd) const {
  if (far != near && round_trip(fd) >= far_from) (void)set(fd, far);
}

}  // namespace gradbus
