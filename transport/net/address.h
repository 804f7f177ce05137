// Socket addresses in text form: "host", "host:port", "[v6]:port". Pure, except for
// resolve_bind_address and reachable_address, which may use the resolver and the interfaces:
// start-up only.
#pragma once

#include <sys/socket.h>

#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t bytes = 0;

  const sockaddr* data() const { return reinterpret_cast<const sockaddr*>(&storage); }
  sockaddr* data() { return reinterpret_cast<sockaddr*>(&storage); }
};

// The address to listen on. No port means 0, any free one. A name is resolved. GB-F100 names the
// text.
Result<SocketAddress> resolve_bind_address(std::string_view text);

// Parses a peer's local_address(). It is numeric with a port, so no resolver can block.
Result<SocketAddress> parse_peer_address(std::string_view text);

// "127.0.0.1:4000", "[::1]:4000".
std::string format_address(const SocketAddress& address);

// Returns `listening` or, when it is a wildcard (0.0.0.0, ::), its port at this machine's first
// address of that family that others can reach. Returns the loopback address when there is none.
SocketAddress reachable_address(const SocketAddress& listening);

}  // namespace gradbus
