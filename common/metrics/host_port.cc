#include "common/metrics/host_port.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>

#include "common/errors.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

Status not_an_address(const std::string& option, const std::string& text) {
  return error("F100", "--" + option + " \"" + text.substr(0, 100) + "\" is not HOST:PORT",
               "give an IP address of this machine and a port, for example 127.0.0.1:9400");
}

union AnyAddress {
  sockaddr any;
  sockaddr_in v4;
  sockaddr_in6 v6;
};

socklen_t fill(const HostPort& from, AnyAddress& to) {
  to = {};
  if (inet_pton(AF_INET6, from.host.c_str(), &to.v6.sin6_addr) == 1) {
    to.v6.sin6_family = AF_INET6;
    to.v6.sin6_port = htons(from.port);
    return sizeof(to.v6);
  }
  inet_pton(AF_INET, from.host.c_str(), &to.v4.sin_addr);
  to.v4.sin_family = AF_INET;
  to.v4.sin_port = htons(from.port);
  return sizeof(to.v4);
}

}  // namespace

std::string HostPort::text(uint16_t real_port) const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(real_port);
}

Result<HostPort> parse_host_port(const std::string& option, const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return not_an_address(option, text);
  HostPort parsed;
  parsed.host = text.substr(0, colon);
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data() + colon + 1, end, parsed.port);
  if (problem != std::errc() || stop != end) return not_an_address(option, text);
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";
  const bool brackets = parsed.host.starts_with('[') && parsed.host.ends_with(']');
  if (brackets) parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  in6_addr unused{};
  if (inet_pton(brackets ? AF_INET6 : AF_INET, parsed.host.c_str(), &unused) != 1)
    return not_an_address(option, text);
  return parsed;
}

Result<Fd> listen_at(const std::string& option, const HostPort& address, int backlog) {
  AnyAddress where;
  const socklen_t bytes = fill(address, where);
  Fd fd(socket(where.any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (fd.valid() && bind(fd.get(), &where.any, bytes) == 0 && listen(fd.get(), backlog) == 0)
    return fd;
  return error("D603", "--" + option + " " + address.text() + ": " + std::strerror(errno),
               bind_advice(errno));
}

std::string address_of(const Fd& listener, const HostPort& address) {
  AnyAddress real{};
  socklen_t bytes = sizeof(real);
  getsockname(listener.get(), &real.any, &bytes);
  return address.text(ntohs(real.any.sa_family == AF_INET6 ? real.v6.sin6_port : real.v4.sin_port));
}

}  // namespace gradbus
