#include "server/coordinator/listen_address.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>

#include "common/errors.h"
#include "common/fd.h"
#include "common/system_error.h"

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

Result<ListenAddress> parse_unix(std::string_view text) {
  ListenAddress address;
  address.path = text.substr(5);
  if (!address.path.starts_with('/') || address.path.size() >= sizeof(sockaddr_un::sun_path))
    return error("F100",
                 "--listen \"" + std::string(text.substr(0, 160)) +
                     "\" is not unix: with an absolute path of at most " +
                     std::to_string(sizeof(sockaddr_un::sun_path) - 1) + " bytes",
                 "for example --listen unix:/run/gradbus/coordinator.sock");
  return address;
}

}  // namespace

Result<ListenAddress> parse_listen_address(std::string_view text) {
  if (text.starts_with("unix:")) return parse_unix(text);
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

std::string ListenAddress::text() const {
  if (is_unix()) return "unix:" + path;
  const bool v6 = host.find(':') != std::string::npos;
  return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

namespace {

sockaddr_un unix_name(const std::string& path) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::memcpy(name.sun_path, path.c_str(), std::min(path.size(), sizeof(name.sun_path) - 1));
  return name;
}

BindProblem problem_of(int reason) {
  return {std::strerror(reason), std::string(bind_advice(reason))};
}

BindProblem why_not_bindable_unix(const std::string& path) {
  const sockaddr_un name = unix_name(path);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return problem_of(errno);
  if (bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), sizeof(name)) != 0)
    return problem_of(errno);
  unlink(path.c_str());
  return {};
}

}  // namespace

bool somebody_answers(const std::string& path) {
  const sockaddr_un name = unix_name(path);
  const Fd socket(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  const auto* address = reinterpret_cast<const sockaddr*>(&name);
  return connect(socket.get(), address, sizeof(name)) == 0 || errno == EAGAIN;
}

BindProblem why_not_bindable(const ListenAddress& address) {
  if (address.is_unix()) return why_not_bindable_unix(address.path);
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failure =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failure != 0) return {gai_strerror(failure), std::string(bind_advice(EADDRNOTAVAIL))};
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  const Fd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return problem_of(errno);
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (bind(socket.get(), found->ai_addr, found->ai_addrlen) != 0) return problem_of(errno);
  return listen(socket.get(), 1) == 0 ? BindProblem{} : problem_of(errno);
}

}  // namespace gradbus
