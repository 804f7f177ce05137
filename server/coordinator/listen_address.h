// The --listen option, host:port or unix:/path, and the errors of an invalid address.
//
// Pure except for why_not_bindable(), which tries to bind a socket to the address.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus {

struct ListenAddress {
  std::string host;  // without brackets
  uint16_t port = 0;
  std::string path;  // of a Unix socket, instead

  bool is_unix() const { return !path.empty(); }
  // "127.0.0.1:7400", "[::1]:7400", "unix:/run/gradbus/coordinator.sock"
  std::string text() const;
};

// GB-F100 when it is neither.
Result<ListenAddress> parse_listen_address(std::string_view text);

struct BindProblem {
  std::string reason;  // "Address already in use"; "" when binding works now
  std::string next;    // what to do; "": what the error says
};

// What gRPC does not tell.
BindProblem why_not_bindable(const ListenAddress& address);

// Whether a program listens on this Unix socket.
bool somebody_answers(const std::string& path);

}  // namespace gradbus
