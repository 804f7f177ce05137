#include "transport/net/socket.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

constexpr int kBacklog = 256;
// What the kernel takes beyond the bytes on their way. More would only keep urgent frames waiting:
// its buffer of 4 MiB is 33 ms at 1 Gbit/s.
constexpr int kUnsentBytesMax = 512 << 10;

void set_option(int fd, int level, int option, int value) {
  // A kernel without one of these options still moves frames, so a refusal is ignored.
  (void)setsockopt(fd, level, option, &value, sizeof(value));
}

// The kernel chooses buffer sizes: a fixed SO_RCVBUF would disable its autotuning.
void prepare_link_socket(int fd, uint32_t peer_timeout_ms) {
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentBytesMax);
  // An idle link sends nothing, so only keepalive can detect that its peer's machine is gone. It
  // probes every second, and the user timeout below decides.
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 2);
  set_user_timeout(fd, peer_timeout_ms);
}

Status cannot(const char* id, const char* verb, const SocketAddress& address) {
  return system_error(id, std::string(verb) + " " + format_address(address), errno,
                      bind_advice(errno));
}

Fd open_socket(const SocketAddress& address, const CongestionControl& congestion) {
  Fd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (fd.valid()) congestion.begin(fd.get());
  return fd;
}

}  // namespace

Result<Fd> listen_on(const SocketAddress& address, const CongestionControl& congestion) {
  Fd fd = open_socket(address, congestion);
  if (!fd.valid()) return cannot("D603", "cannot listen on", address);
  set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);  // old connections in TIME_WAIT do not count
  if (bind(fd.get(), address.data(), address.bytes) != 0 || listen(fd.get(), kBacklog) != 0) {
    return cannot("D603", "cannot listen on", address);
  }
  return fd;
}

SocketAddress local_address_of(int fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  (void)getsockname(fd, address.data(), &address.bytes);
  return address;
}

SocketAddress peer_address_of(int fd) {
  SocketAddress address;
  address.bytes = sizeof(address.storage);
  (void)getpeername(fd, address.data(), &address.bytes);
  return address;
}

Result<Fd> start_connect(const SocketAddress& address, uint32_t peer_timeout_ms,
                         const CongestionControl& congestion) {
  Fd fd = open_socket(address, congestion);
  if (!fd.valid()) return cannot("D604", "cannot connect to", address);
  prepare_link_socket(fd.get(), peer_timeout_ms);
  if (::connect(fd.get(), address.data(), address.bytes) != 0 && errno != EINPROGRESS) {
    return cannot("D604", "cannot connect to", address);
  }
  return fd;
}

Fd accept_connection(int listener, uint32_t peer_timeout_ms, const CongestionControl& congestion) {
  Fd fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!fd.valid()) return fd;
  prepare_link_socket(fd.get(), peer_timeout_ms);
  congestion.settle(fd.get());
  return fd;
}

IoResult read_missing(int fd, std::span<std::byte> target, size_t& filled) {
  while (filled < target.size()) {
    const ssize_t bytes = recv(fd, target.data() + filled, target.size() - filled, MSG_DONTWAIT);
    if (bytes == 0) return {Io::kEnded, {}};
    if (bytes > 0) {
      filled += static_cast<size_t>(bytes);
    } else if (errno != EINTR) {
      return io_errno(errno);
    }
  }
  return {};
}

int socket_error(int fd) {
  int failure = 0;
  socklen_t bytes = sizeof(failure);
  return getsockopt(fd, SOL_SOCKET, SO_ERROR, &failure, &bytes) == 0 ? failure : errno;
}

bool peer_window_is_closed(int fd) {
  tcp_info info{};
  socklen_t bytes = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &bytes) != 0) return false;
  return info.tcpi_unacked == 0 && info.tcpi_notsent_bytes > 0;
}

void set_user_timeout(int fd, uint32_t timeout_ms) {
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, static_cast<int>(timeout_ms));
}

}  // namespace gradbus
