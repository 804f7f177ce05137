#include "worker_agent/clients/attach_listener.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "common/errors.h"
#include "common/system_error.h"
#include "proto/attach.h"
#include "shared_memory/attach_socket.h"

namespace gradbus {
namespace {

constexpr int kBacklog = 128;

Status cannot(const std::string& what, const std::string& path, int cause) {
  const bool forbidden = cause == EACCES || cause == EPERM || cause == EROFS;
  return system_error(forbidden ? "A302" : "D603", what + " " + path, cause,
                      "choose another --socket, in a folder that this user may write");
}

Result<sockaddr_un> socket_address(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return error("F100", "--socket \"" + path + "\" must have 1.." +
                             std::to_string(sizeof(address.sun_path) - 1) + " bytes");
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  return address;
}

// A path that refuses connections is left over from an agent that died.
Status take_over(const std::string& path, const sockaddr_un& address) {
  struct stat info {};
  if (lstat(path.c_str(), &info) != 0) return {};
  if (!S_ISSOCK(info.st_mode)) return cannot("is not a socket:", path, EEXIST);
  Fd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return error("A303", path);
  if (errno != ECONNREFUSED) return cannot("cannot take over", path, errno);
  return unlink(path.c_str()) == 0 ? Status() : cannot("cannot remove", path, errno);
}

// Uses the kernel's own handle of the peer if possible (6.5). It also works across pid namespaces.
Fd open_process(int socket, pid_t pid) {
#ifndef SO_PEERPIDFD
  constexpr int SO_PEERPIDFD = 77;
#endif
  int fd = -1;
  socklen_t length = sizeof(fd);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &fd, &length) == 0) return Fd(fd);
  return pid > 0 ? Fd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0))) : Fd();
}

Fd accept_one(int listener) {
  return Fd(accept4(listener, nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
}

}  // namespace

Result<AttachListener> AttachListener::open(const std::string& path, mode_t mode) {
  Result<sockaddr_un> address = socket_address(path);
  if (!address.ok()) return address.status();
  std::error_code problem;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), problem);
  if (problem) return cannot("cannot create the folder of", path, problem.value());
  GRADBUS_RETURN_IF_ERROR(take_over(path, address.value()));
  Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!socket.valid() ||
      bind(socket.get(), reinterpret_cast<sockaddr*>(&address.value()), sizeof(sockaddr_un)) != 0)
    return cannot("cannot bind", path, errno);
  if (chmod(path.c_str(), mode) != 0 || listen(socket.get(), kBacklog) != 0)
    return cannot("cannot listen on", path, errno);
  return AttachListener(path, std::move(socket));
}

AttachListener::~AttachListener() {
  if (socket_.valid()) unlink(path_.c_str());
}

// Otherwise the connection would wait forever, and epoll would report it again and again.
void AttachListener::turn_one_away() {
  spare_.reset();
  if (const AcceptedSocket client(accept_one(fd())); client.valid()) {
    const Status why = error("S220", "this agent has no file descriptor left for another client");
    auto packet = make_packet<JoinedPacket>(1);
    packet.code = static_cast<uint32_t>(why.code());
    set_text(packet.text, why.message());
    (void)send_packet(client.get(), &packet, sizeof(packet));  // it may have gone
  }
  spare_.reset(fcntl(fd(), F_DUPFD_CLOEXEC, 0));
}

std::optional<AcceptedClient> AttachListener::accept() {
  AcceptedClient client;
  client.socket = AcceptedSocket(accept_one(fd()));
  if (!client.socket.valid()) {
    if (errno == EMFILE || errno == ENFILE) turn_one_away();
    return std::nullopt;
  }
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(client.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0)
    return std::nullopt;
  client.uid = peer.uid;
  client.pid = peer.pid;
  client.process = open_process(client.socket.get(), peer.pid);
  if (!client.process.valid() && peer.pid > 0) client.identity = ProcessIdentity(peer.pid);
  return client;
}

}  // namespace gradbus
