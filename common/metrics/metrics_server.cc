#include "common/metrics/metrics_server.h"

#include <civetweb.h>

#include <string_view>

#include "common/errors.h"
#include "common/guarded.h"
#include "common/log.h"
#include "common/metrics/host_port.h"

namespace gradbus {
namespace {

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
  const Result<HostPort> parsed = parse_host_port("metrics-listen", address);
  if (!parsed.ok()) return parsed.status();
  const std::string ports = parsed.value().text();
  // civetweb does not tell why an address cannot be used.
  if (const Result<Fd> tried = listen_at("metrics-listen", parsed.value(), 1); !tried.ok())
    return tried.status();
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
