#include "cli/cluster/agent_socket.h"

#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "common/errors.h"
#include "common/fd.h"

namespace gradbus {

SocketAnswer probe_socket(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path)) return SocketAnswer::kNobody;
  std::memcpy(address.sun_path, path.data(), path.size());
  const Fd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return SocketAnswer::kNobody;
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0)
    return SocketAnswer::kAnswers;
  // EAGAIN: its queue of new connections is full, so it is there.
  if (errno == EAGAIN) return SocketAnswer::kAnswers;
  return errno == EACCES || errno == EPERM ? SocketAnswer::kNoPermission : SocketAnswer::kNobody;
}

std::vector<std::string> agent_socket_candidates() {
  const char* chosen = std::getenv("GRADBUS_SOCKET");
  if (chosen != nullptr && *chosen != '\0') return {chosen};
  std::vector<std::string> paths = {"/run/gradbus/agent.sock"};
  const char* runtime = std::getenv("XDG_RUNTIME_DIR");
  if (runtime != nullptr && *runtime != '\0')
    paths.push_back(std::string(runtime) + "/gradbus/agent.sock");
  return paths;
}

Result<std::string> find_agent_socket() {
  const std::vector<std::string> paths = agent_socket_candidates();
  SocketAnswer answer = SocketAnswer::kNobody;
  for (const std::string& path : paths) {
    answer = probe_socket(path);
    if (answer == SocketAnswer::kAnswers) return path;
  }
  const char* chosen = std::getenv("GRADBUS_SOCKET");
  if (chosen == nullptr || *chosen == '\0') return std::string();
  if (answer == SocketAnswer::kNoPermission)
    return error("A302", "GRADBUS_SOCKET=" + paths.front() + " may not be opened by this user");
  return error("A300", "no agent listens on GRADBUS_SOCKET=" + paths.front(),
               "start gradbus-agent there, unset GRADBUS_SOCKET, or use --embedded");
}

}  // namespace gradbus
