#include "server/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "common/errors.h"
#include "common/fd.h"

namespace gradbus {
namespace {

Status not_an_address(std::string_view text) {
  return error("F100", "--listen \"" + std::string(text) + "\" is not host:port",
               "for example --listen 127.0.0.1:7400");
}

bool parse_port(std::string_view text, uint16_t* port) {
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), *port);
  return failure == std::errc() && end == text.data() + text.size();
}

}  // namespace

Result<ListenAddress> parse_listen_address(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return not_an_address(text);
  ListenAddress address;
  std::string_view host = text.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) {
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return not_an_address(text);
  }
  address.host = host;
  if (host.empty() || !parse_port(text.substr(colon + 1), &address.port))
    return not_an_address(text);
  return address;
}

bool ListenAddress::is_loopback() const {
  if (host == "localhost") return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string ListenAddress::text() const {
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

std::string why_not_bindable(const ListenAddress& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failure != 0) return gai_strerror(failure);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const Fd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return std::strerror(errno);
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0) return std::strerror(errno);
  return listen(socket.get(), 1) == 0 ? "" : std::strerror(errno);
}

}  // namespace gradbus
