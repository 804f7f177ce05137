#include "transport/net/local_socket.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstring>
#include <vector>

namespace gradbus {
namespace {

constexpr int kLocalBacklog = 256;
constexpr std::string_view kNamePrefix = "gradbus-local-1-";  // 1: layout of RingPair

struct LocalName {
  sockaddr_un name{};
  socklen_t bytes = 0;

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&name); }
};

// The first byte is zero: abstract. An address is at most 56 characters, so it fits.
LocalName name_of(const SocketAddress& address) {
  const std::string text = std::string(kNamePrefix) + format_address(address);
  LocalName local;
  local.name.sun_family = AF_UNIX;
  std::memcpy(local.name.sun_path + 1, text.data(), text.size());
  local.bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
  return local;
}

Fd open_local_socket() {
  return Fd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

ucred peer_of(int fd) {
  ucred peer{-1, static_cast<uid_t>(-1), static_cast<gid_t>(-1)};
  socklen_t bytes = sizeof(peer);
  (void)getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &bytes);
  return peer;
}

// One descriptor sent with a message.
struct Passenger {
  alignas(cmsghdr) std::byte buffer[CMSG_SPACE(sizeof(int))] = {};

  void board(msghdr& message) {
    message.msg_control = buffer;
    message.msg_controllen = sizeof(buffer);
  }
};

void put_fd(msghdr& message, Passenger& passenger, int passed) {
  passenger.board(message);
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(part), &passed, sizeof(int));
}

}  // namespace

Fd listen_locally(const SocketAddress& address) {
  const LocalName local = name_of(address);
  Fd fd = open_local_socket();
  if (!fd.valid() || bind(fd.get(), local.data(), local.bytes) != 0 ||
      listen(fd.get(), kLocalBacklog) != 0) {
    return {};
  }
  return fd;
}

Fd accept_locally(int listener) {
  return Fd(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
}

bool is_own(int socket) { return peer_of(socket).uid == geteuid(); }

Fd connect_locally(const SocketAddress& address) {
  const LocalName local = name_of(address);
  Fd fd = open_local_socket();
  if (!fd.valid() || ::connect(fd.get(), local.data(), local.bytes) != 0) return {};
  return is_own(fd.get()) ? std::move(fd) : Fd();
}

std::string local_peer_of(int fd) {
  return "process " + std::to_string(peer_of(fd).pid) + " of this machine";
}

bool send_with_fd(int socket, std::span<const std::byte> bytes, int passed) {
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};  // sendmsg only reads the bytes
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  Passenger passenger;
  if (passed >= 0) put_fd(message, passenger, passed);
  return sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

IoResult read_missing_with_fd(int socket, std::span<std::byte> target, size_t& filled, Fd& passed) {
  while (filled < target.size()) {
    iovec part{target.data() + filled, target.size() - filled};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    Passenger passenger;
    passenger.board(message);
    const ssize_t bytes = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (bytes == 0) return {Io::kEnded, {}};
    if (bytes > 0) {
      filled += static_cast<size_t>(bytes);
      std::vector<Fd> fds;
      take_fds(message, fds);
      if (fds.size() > 1 || (message.msg_flags & MSG_CTRUNC) != 0) return io_errno(EBADMSG);
      if (!fds.empty()) passed = std::move(fds.front());
    } else if (errno != EINTR) {
      return io_errno(errno);
    }
  }
  return {};
}

}  // namespace gradbus
