// The HTTP port of a daemon: /metrics for Prometheus, /healthz and /readyz for probes. Read only.
//
// civetweb's threads answer. They never wait for the engine or a control thread: the handlers read
// what those have published. Connections, requests and answers have limits and deadlines, so a
// client that sends or reads slowly holds one of few threads for seconds and nothing else.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "common/metrics/http_page.h"
#include "common/metrics/slow_clients.h"
#include "common/status.h"

struct mg_connection;
struct mg_context;

namespace gradbus {

// Called by several threads at a time.
struct MetricsHandlers {
  std::function<std::string()> page;  // Prometheus text
  std::function<Status()> healthy;    // an error: restart the daemon
  std::function<Status()> ready;      // an error: it cannot serve jobs now
  HttpPage others;                    // other pages; may be empty
};

class MetricsServer {
 public:
  // `address`: HOST:PORT, where HOST is an IP address or localhost and port 0 is any free one.
  // GB-F100 for another one, GB-D603 when it cannot be listened on.
  static Result<std::unique_ptr<MetricsServer>> start(const std::string& address,
                                                      MetricsHandlers handlers);
  ~MetricsServer();
  MetricsServer(const MetricsServer&) = delete;
  MetricsServer& operator=(const MetricsServer&) = delete;

  const std::string& address() const { return address_; }  // with the real port

  // ---- civetweb's threads
  int answer(mg_connection* connection) const;
  // A client was too slow: "did not read the answer".
  void report(const mg_connection* connection, const std::string& what);

 private:
  explicit MetricsServer(MetricsHandlers handlers) : handlers_(std::move(handlers)) {}
  void answer_other(mg_connection* connection, const std::string& path, bool with_body) const;

  const MetricsHandlers handlers_;
  mg_context* context_ = nullptr;
  SlowClients slow_;
  std::string address_;
};

}  // namespace gradbus
