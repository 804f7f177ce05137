// The --listen option: host:port, and what is wrong with one.
//
// Pure but for why_not_bindable, which tries the address with a socket of its own.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus {

struct ListenAddress {
  std::string host;  // without brackets
  uint16_t port = 0;

  bool is_loopback() const;
  // "127.0.0.1:7400", "[::1]:7400"
  std::string text() const;
};

// GB-F100 when it is not host:port.
Result<ListenAddress> parse_listen_address(std::string_view text);

// "Address already in use"; gRPC does not tell. "" when binding works now.
std::string why_not_bindable(const ListenAddress& address);

}  // namespace gradbus
