#include "transport/net/address.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>

#include <charconv>
#include <cstring>
#include <memory>
#include <optional>

#include "common/errors.h"

namespace gradbus {
namespace {

struct HostPort {
  std::string host;
  std::string port;  // digits, or empty
};

bool is_port(std::string_view text) {
  uint16_t port = 0;
  const auto [end, failure] = std::from_chars(text.data(), text.data() + text.size(), port);
  return failure == std::errc() && end == text.data() + text.size();
}

std::optional<HostPort> with_port(std::string_view host, std::string_view port) {
  if (host.empty() || (!port.empty() && !is_port(port))) return std::nullopt;
  return HostPort{std::string(host), std::string(port)};
}

// "[v6]" or "[v6]:port".
std::optional<HostPort> split_bracketed(std::string_view text) {
  const size_t close = text.find(']');
  if (close == std::string_view::npos) return std::nullopt;
  const std::string_view host = text.substr(1, close - 1);
  const std::string_view rest = text.substr(close + 1);
  if (rest.empty()) return with_port(host, "");
  if (rest.front() != ':' || rest.size() == 1) return std::nullopt;
  return with_port(host, rest.substr(1));
}

std::optional<HostPort> split(std::string_view text) {
  if (text.starts_with('[')) return split_bracketed(text);
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || text.find(':', colon + 1) != std::string_view::npos) {
    return with_port(text, "");  // a bare host, or a bare IPv6 address
  }
  if (colon + 1 == text.size()) return std::nullopt;
  return with_port(text.substr(0, colon), text.substr(colon + 1));
}

Result<SocketAddress> look_up(const HostPort& parts, int flags, std::string_view text) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const char* port = parts.port.empty() ? "0" : parts.port.c_str();
  const int failure = getaddrinfo(parts.host.c_str(), port, &hints, &found);
  if (failure != 0) {
    return error("F100", "address '" + std::string(text) + "': " + gai_strerror(failure));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  SocketAddress address;
  address.bytes = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  return address;
}

Status bad_address(std::string_view text) {
  return error("F100",
               "address '" + std::string(text) + "' is not host, host:port or [v6 address]:port");
}

uint16_t port_of(const SocketAddress& address) {
  // Both families keep the port at the same place.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  return reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_port;
}

void set_port(SocketAddress& address, uint16_t port) {
  reinterpret_cast<sockaddr_in*>(&address.storage)->sin_port = port;
}

bool is_wildcard(const SocketAddress& address) {
  if (address.storage.ss_family == AF_INET) {
    return reinterpret_cast<const sockaddr_in*>(&address.storage)->sin_addr.s_addr == INADDR_ANY;
  }
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(&address.storage);
  return IN6_IS_ADDR_UNSPECIFIED(&v6->sin6_addr);
}

// Link-local IPv6 addresses need an interface name, which is meaningless on a peer.
bool is_reachable(const ifaddrs& entry, int family) {
  if (entry.ifa_addr == nullptr || entry.ifa_addr->sa_family != family) return false;
  if ((entry.ifa_flags & IFF_UP) == 0 || (entry.ifa_flags & IFF_LOOPBACK) != 0) return false;
  if (family == AF_INET) return true;
  const auto* v6 = reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
  return !IN6_IS_ADDR_LINKLOCAL(&v6->sin6_addr);
}

SocketAddress loopback_like(const SocketAddress& address) {
  SocketAddress loopback = address;
  if (address.storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in*>(&loopback.storage)->sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  } else {
    reinterpret_cast<sockaddr_in6*>(&loopback.storage)->sin6_addr = in6addr_loopback;
  }
  return loopback;
}

}  // namespace

Result<SocketAddress> resolve_bind_address(std::string_view text) {
  const std::optional<HostPort> parts = split(text);
  if (!parts) return bad_address(text);
  return look_up(*parts, AI_PASSIVE, text);
}

Result<SocketAddress> parse_peer_address(std::string_view text) {
  const std::optional<HostPort> parts = split(text);
  if (!parts || parts->port.empty() || parts->port == "0") return bad_address(text);
  return look_up(*parts, AI_NUMERICHOST, text);
}

std::string format_address(const SocketAddress& address) {
  char host[NI_MAXHOST] = "?";
  char port[NI_MAXSERV] = "?";
  getnameinfo(address.data(), address.bytes, host, sizeof(host), port, sizeof(port),
              NI_NUMERICHOST | NI_NUMERICSERV);
  const bool v6 = address.storage.ss_family == AF_INET6;
  return (v6 ? "[" : "") + std::string(host) + (v6 ? "]:" : ":") + port;
}

SocketAddress reachable_address(const SocketAddress& listening) {
  if (!is_wildcard(listening)) return listening;
  ifaddrs* first = nullptr;
  if (getifaddrs(&first) != 0) return loopback_like(listening);
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(first, freeifaddrs);
  for (const ifaddrs* entry = first; entry != nullptr; entry = entry->ifa_next) {
    if (!is_reachable(*entry, listening.storage.ss_family)) continue;
    SocketAddress address = listening;
    std::memcpy(&address.storage, entry->ifa_addr, listening.bytes);
    set_port(address, port_of(listening));
    return address;
  }
  return loopback_like(listening);
}

}  // namespace gradbus
