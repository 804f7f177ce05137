// Is there an agent on this machine? Any thread; never waits.
#pragma once

#include <string>
#include <vector>

#include "common/status.h"

namespace gradbus {

enum class SocketAnswer { kAnswers, kNobody, kNoPermission };

// Connects to the SOCK_SEQPACKET socket at `path` and hangs up.
SocketAnswer probe_socket(const std::string& path);

// Where an agent may listen: GRADBUS_SOCKET alone when it is set, else /run/gradbus/agent.sock and
// $XDG_RUNTIME_DIR/gradbus/agent.sock.
std::vector<std::string> agent_socket_candidates();

// The first candidate that answers; "" when none does. A GRADBUS_SOCKET that does not answer is
// GB-A300 or GB-A302: somebody asked for that agent by name.
Result<std::string> find_agent_socket();

}  // namespace gradbus
