#include "common/metrics/metrics_server.h"

#include <civetweb.h>

#include <new>
#include <string_view>

#include "common/errors.h"
#include "common/guarded.h"
#include "common/log.h"
#include "common/metrics/host_port.h"

namespace gradbus {
namespace {

constexpr Nanos kDeadline = 2 * kSecond;  // of a request, and of its answer

// When the connection began, until its request has come. civetweb keeps the pointer.
using Begin = Nanos;

MetricsServer& server_of(const mg_connection* connection) {
  return *static_cast<MetricsServer*>(mg_get_user_data(mg_get_context(connection)));
}

void respond(mg_connection* connection, const std::string& status, const std::string& type,
             const std::string& body, bool with_body, const std::string& headers = "") {
  std::string text = "HTTP/1.1 " + status + "\r\nContent-Type: " + type +
                     "\r\nContent-Length: " + std::to_string(body.size()) +
                     "\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n" +
                     headers + "Connection: close\r\n\r\n";
  if (with_body) text += body;
  if (mg_write(connection, text.data(), text.size()) < static_cast<int>(text.size()))
    server_of(connection).report(connection, "did not read the answer");
}

void respond(mg_connection* connection, const Status& status, bool with_body) {
  respond(connection, status.ok() ? "200 OK" : "503 Service Unavailable", "text/plain",
          (status.ok() ? "ok" : status.message()) + "\n", with_body);
}

// ---- the time of a connection until its request has come

int begin_connection(const mg_connection*, void** began) {
  *began = new (std::nothrow) Begin(monotonic_now());
  return 0;
}

int answer_request(mg_connection* connection) {
  delete static_cast<Begin*>(mg_get_user_connection_data(connection));
  mg_set_user_connection_data(connection, nullptr);
  return server_of(connection).answer(connection);
}

void end_connection(const mg_connection* connection) {
  const std::unique_ptr<Begin> began(static_cast<Begin*>(mg_get_user_connection_data(connection)));
  if (began != nullptr && monotonic_now() - *began >= kDeadline * 9 / 10)
    server_of(connection).report(connection, "did not send a request");
}

int log_nothing(const mg_connection*, const char* text) {
  spdlog::debug("the metrics port: {}", text);
  return 1;
}

}  // namespace

void MetricsServer::report(const mg_connection* connection, const std::string& what) {
  const mg_request_info* request = mg_get_request_info(connection);
  mg_server_port real{};
  mg_get_server_ports(mg_get_context(connection), 1, &real);
  slow_.add("--metrics-listen port " + std::to_string(real.port) + ": a client at " +
            (request == nullptr ? "an unknown address" : request->remote_addr) + " " + what +
            " in time and was disconnected");
}

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
  const Result<HostPort> parsed = parse_host_port("metrics-listen", address);
  if (!parsed.ok()) return parsed.status();
  const std::string ports = parsed.value().text();
  // civetweb does not tell why an address cannot be used.
  if (const Result<Fd> tried = listen_at("metrics-listen", parsed.value(), 1); !tried.ok())
    return tried.status();
  static const unsigned initialised = mg_init_library(0);
  static_cast<void>(initialised);
  const std::string deadline_ms = std::to_string(kDeadline / kMillisecond);
  // A request has kDeadline to come, and an answer to go. Connections that wait for one of the
  // threads are few, and the kernel refuses the rest.
  const char* options[] = {"listening_ports",
                           ports.c_str(),
                           "num_threads",
                           "4",
                           "request_timeout_ms",
                           deadline_ms.c_str(),
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
  callbacks.init_connection = begin_connection;
  callbacks.begin_request = answer_request;
  callbacks.connection_close = end_connection;
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
