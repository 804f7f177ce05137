#include "common/metrics/metrics_server.h"

#include <arpa/inet.h>
#include <civetweb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include "common/errors.h"
#include "common/fd.h"
#include "common/guarded.h"
#include "common/log.h"

namespace gradbus {
namespace {

struct HostPort {
  std::string host;  // an IP address, without brackets
  uint16_t port = 0;
  std::string text(uint16_t real_port) const {
    const bool v6 = host.find(':') != std::string::npos;
    return (v6 ? "[" + host + "]" : host) + ":" + std::to_string(real_port);
  }
};

Status not_an_address(const std::string& text) {
  return error("F100", "--metrics-listen \"" + text.substr(0, 100) + "\" is not HOST:PORT",
               "give an IP address of this machine and a port, for example 127.0.0.1:9400");
}

Result<HostPort> parse(const std::string& text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string::npos || colon + 1 == text.size()) return not_an_address(text);
  HostPort parsed;
  parsed.host = text.substr(0, colon);
  const char* const end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data() + colon + 1, end, parsed.port);
  if (problem != std::errc() || stop != end) return not_an_address(text);
  if (parsed.host == "localhost") parsed.host = "127.0.0.1";
  const bool brackets = parsed.host.starts_with('[') && parsed.host.ends_with(']');
  if (brackets) parsed.host = parsed.host.substr(1, parsed.host.size() - 2);
  in6_addr unused{};
  if (inet_pton(brackets ? AF_INET6 : AF_INET, parsed.host.c_str(), &unused) != 1)
    return not_an_address(text);
  return parsed;
}

// civetweb does not tell why an address cannot be used. "" when binding works now.
std::string why_not_bindable(const HostPort& address) {
  sockaddr_in6 v6{};
  sockaddr_in v4{};
  const bool is_v6 = inet_pton(AF_INET6, address.host.c_str(), &v6.sin6_addr) == 1;
  v6.sin6_family = AF_INET6;
  v4.sin_family = AF_INET;
  v6.sin6_port = v4.sin_port = htons(address.port);
  if (!is_v6) inet_pton(AF_INET, address.host.c_str(), &v4.sin_addr);
  const Fd fd(socket(is_v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = 1;
  setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  const auto* where =
      is_v6 ? reinterpret_cast<const sockaddr*>(&v6) : reinterpret_cast<const sockaddr*>(&v4);
  const socklen_t bytes = is_v6 ? sizeof(v6) : sizeof(v4);
  const bool bound = fd.valid() && bind(fd.get(), where, bytes) == 0 && listen(fd.get(), 1) == 0;
  return bound ? "" : std::strerror(errno);
}

void respond(mg_connection* connection, const std::string& status, const std::string& type,
             const std::string& body, bool with_body, const std::string& headers = "") {
  std::string text = "HTTP/1.1 " + status + "\r\nContent-Type: " + type +
                     "\r\nContent-Length: " + std::to_string(body.size()) +
                     "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n" +
                     headers + "Connection: close\r\n\r\n";
  if (with_body) text += body;
  mg_write(connection, text.data(), text.size());
}

void respond(mg_connection* connection, const Status& status, bool with_body) {
  respond(connection, status.ok() ? "200 OK" : "503 Service Unavailable", "text/plain",
          (status.ok() ? "ok" : status.message()) + "\n", with_body);
}

int log_nothing(const mg_connection*, const char* text) {
  spdlog::debug("the metrics port: {}", text);
  return 1;
}

}  // namespace

int MetricsServer::answer(mg_connection* connection) const {
  const mg_request_info& request = *mg_get_request_info(connection);
  const std::string_view method = request.request_method;
  const std::string_view path = request.local_uri == nullptr ? "" : request.local_uri;
  const bool with_body = method == "GET";
  if (!with_body && method != "HEAD") {
    respond(connection, "405 Method Not Allowed", "text/plain", "only GET and HEAD\n", true);
  } else if (path == "/metrics") {
    std::string page;
    if (const Status made = guarded([&] { page = handlers_.page(); }); !made.ok())
      respond(connection, made, with_body);
    else
      respond(connection, "200 OK", "text/plain; version=0.0.4; charset=utf-8", page, with_body);
  } else if (path == "/healthz") {
    respond(connection, handlers_.healthy(), with_body);
  } else if (path == "/readyz") {
    respond(connection, handlers_.ready(), with_body);
  } else {
    answer_other(connection, std::string(path), with_body);
  }
  return 200;
}

void MetricsServer::answer_other(mg_connection* connection, const std::string& path,
                                 bool with_body) const {
  std::optional<HttpAnswer> found;
  const char* given = mg_get_header(connection, "Authorization");
  const HttpRequest request{path, given == nullptr ? "" : given};
  if (const Status made = guarded([&] {
        if (handlers_.others) found = handlers_.others(request);
      });
      !made.ok())
    return respond(connection, made, with_body);
  if (found)
    return respond(connection, found->status, found->type, *found->body, with_body, found->headers);
  respond(connection, "404 Not Found", "text/plain", "try /metrics, /healthz or /readyz\n",
          with_body);
}

Result<std::unique_ptr<MetricsServer>> MetricsServer::start(const std::string& address,
                                                            MetricsHandlers handlers) {
  const Result<HostPort> parsed = parse(address);
  if (!parsed.ok()) return parsed.status();
  const std::string ports = parsed.value().text(parsed.value().port);
  if (const std::string why = why_not_bindable(parsed.value()); !why.empty())
    return error("D603", "--metrics-listen " + ports + ": " + why);
  static const unsigned initialised = mg_init_library(0);
  static_cast<void>(initialised);
  // A request has 2 s to come and an answer 2 s to go. Connections that wait for one of the threads
  // are few, and the kernel refuses the rest.
  const char* options[] = {"listening_ports",
                           ports.c_str(),
                           "num_threads",
                           "4",
                           "request_timeout_ms",
                           "2000",
                           "linger_timeout_ms",
                           "100",
                           "enable_keep_alive",
                           "no",
                           "max_request_size",
                           "8192",
                           "connection_queue",
                           "16",
                           "listen_backlog",
                           "64",
                           nullptr};
  std::unique_ptr<MetricsServer> server(new MetricsServer(std::move(handlers)));
  mg_callbacks callbacks{};
  callbacks.log_message = log_nothing;
  callbacks.begin_request = [](mg_connection* connection) {
    const void* self = mg_get_user_data(mg_get_context(connection));
    return static_cast<const MetricsServer*>(self)->answer(connection);
  };
  server->context_ = mg_start(&callbacks, server.get(), options);
  if (server->context_ == nullptr)
    return error("D603", "--metrics-listen " + ports + ": the HTTP server did not start");
  mg_server_port real{};
  mg_get_server_ports(server->context_, 1, &real);
  server->address_ = parsed.value().text(static_cast<uint16_t>(real.port));
  return server;
}

MetricsServer::~MetricsServer() {
  if (context_ != nullptr) mg_stop(context_);
}

}  // namespace gradbus
