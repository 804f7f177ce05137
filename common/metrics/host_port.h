// The addresses of a daemon's small ports: metrics, and health by gRPC. Any thread.
#pragma once

#include <cstdint>
#include <string>

#include "common/fd.h"
#include "common/status.h"

namespace gradbus {

struct HostPort {
  std::string host;  // an IP address, without brackets
  uint16_t port = 0;
  std::string text() const { return text(port); }
  std::string text(uint16_t real_port) const;
};

// `text`: HOST:PORT, where HOST is an IP address or localhost. GB-F100, which names the option, for
// any other.
Result<HostPort> parse_host_port(const std::string& option, const std::string& text);

// A socket that listens and does not block. GB-D603, which names the option, where it cannot.
Result<Fd> listen_at(const std::string& option, const HostPort& address, int backlog);

// With the port that the kernel chose.
std::string address_of(const Fd& listener, const HostPort& address);

}  // namespace gradbus
