// What a daemon tells the outside about itself: metrics and health by HTTP, health by gRPC,
// and messages to systemd.
//
// One thread looks once a second whether the daemon's threads make progress. Only then it answers
// systemd's watchdog. So a stuck thread gets the daemon restarted. start() and stop() are for the
// main thread; the other calls are for any thread.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "common/daemon/health_port.h"
#include "common/daemon/progress_watch.h"
#include "common/metrics/metrics_board.h"
#include "common/metrics/metrics_server.h"

namespace gradbus {

class DaemonMonitor {
 public:
  // `role`: agent, shard or coordinator.
  explicit DaemonMonitor(std::string role) : role_(std::move(role)) {}
  ~DaemonMonitor() { stop(); }
  DaemonMonitor(const DaemonMonitor&) = delete;
  DaemonMonitor& operator=(const DaemonMonitor&) = delete;

  ProgressWatch& watch() { return watch_; }
  MetricsBoard& board() { return board_; }

  // Listens on `address` unless it is "". Errors: MetricsServer::start. `others`: more pages; it
  // outlives this object.
  Status listen(const std::string& address, HttpPage others = {});
  // "" when nothing is listened on.
  std::string address() const { return server_ == nullptr ? "" : server_->address(); }

  // The health service by gRPC, on `address` unless it is "". Errors: HealthPort::start.
  Status listen_health(const std::string& address);
  // "" when nothing is listened on.
  std::string health_address() const { return health_ == nullptr ? "" : health_->address(); }
  // Of a daemon that has a gRPC server anyway: called when the state may have changed, with whether
  // it serves jobs and whether its threads move. Before start().
  using ShowHealth = std::function<void(bool serves, bool moves)>;
  void on_health(ShowHealth show) { show_health_ = std::move(show); }

  // Starts the thread, and tells systemd that the daemon serves.
  void start();
  // The daemon ends: nothing is watched any more, and systemd is told.
  void stop();
  // Reloads end with this.
  void reloaded();

  // Whether the daemon can serve jobs: /readyz, and the line of `systemctl status`.
  void set_ready(const Status& ready, const std::string& text);

 private:
  std::string page() const;
  std::string text() const;
  Status ready() const;
  void show_health(bool serves, bool moves);
  void run();

  const std::string role_;
  ProgressWatch watch_;
  MetricsBoard board_;
  mutable std::mutex lock_;
  std::condition_variable changed_;
  Status ready_;
  std::string text_ = "starting";
  bool news_ = false;  // since the thread's last look: it became ready, or is no longer
  bool stopping_ = false;
  std::unique_ptr<MetricsServer> server_;
  std::unique_ptr<HealthPort> health_;
  ShowHealth show_health_;
  std::optional<std::pair<bool, bool>> shown_health_;
  std::thread thread_;
};

}  // namespace gradbus
