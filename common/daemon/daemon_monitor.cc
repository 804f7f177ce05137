#include "common/daemon/daemon_monitor.h"

#include <algorithm>
#include <chrono>

#include "common/daemon/service_manager.h"
#include "common/log.h"
#include "common/metrics/process_figures.h"

namespace gradbus {
namespace {

constexpr Nanos kLookEvery = kSecond;

}  // namespace

Status DaemonMonitor::listen(const std::string& address, HttpPage others) {
  if (address.empty()) return {};
  MetricsHandlers handlers;
  handlers.page = [this] { return page(); };
  handlers.healthy = [this] { return watch_.check(monotonic_now()); };
  handlers.ready = [this] { return ready(); };
  handlers.others = std::move(others);
  Result<std::unique_ptr<MetricsServer>> server =
      MetricsServer::start(address, std::move(handlers));
  if (!server.ok()) return server.status();
  server_ = server.take();
  spdlog::info("metrics and health at http://{}/metrics", server_->address());
  return {};
}

Status DaemonMonitor::listen_health(const std::string& address) {
  if (address.empty()) return {};
  Result<std::unique_ptr<HealthPort>> port = HealthPort::start(address);
  if (!port.ok()) return port.status();
  health_ = port.take();
  on_health([this](bool serves, bool moves) { health_->set(serves, moves); });
  spdlog::info("health by gRPC at {}", health_->address());
  return {};
}

// gRPC tells watchers each state that it is given, so it is given changes only.
void DaemonMonitor::show_health(bool serves, bool moves) {
  const std::pair<bool, bool> now{serves, moves};
  if (!show_health_ || shown_health_ == now) return;
  shown_health_ = now;
  show_health_(serves, moves);
}

void DaemonMonitor::start() {
  tell_ready(text());
  thread_ = std::thread([this] { run(); });
}

void DaemonMonitor::stop() {
  {
    const std::lock_guard lock(lock_);
    if (stopping_) return;
    stopping_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
    tell_stopping();
    show_health(false, true);
  }
  show_health_ = nullptr;
  health_.reset();
  server_.reset();
}

void DaemonMonitor::reloaded() { tell_ready(text()); }

void DaemonMonitor::set_ready(const Status& ready, const std::string& text) {
  const std::lock_guard lock(lock_);
  news_ = news_ || ready.ok() != ready_.ok();
  ready_ = ready;
  text_ = text;
  changed_.notify_all();
}

std::string DaemonMonitor::page() const {
  MetricPage page;
  const Nanos now = monotonic_now();
  add_process_figures(page, role_);
  watch_.add_to(page, now);
  board_.add_to(page, now);
  return page.text();
}

std::string DaemonMonitor::text() const {
  const std::lock_guard lock(lock_);
  return text_;
}

Status DaemonMonitor::ready() const {
  if (const Status stuck = watch_.check(monotonic_now()); !stuck.ok()) return stuck;
  const std::lock_guard lock(lock_);
  return ready_;
}

// systemd advises to answer in half of the watchdog's time.
void DaemonMonitor::run() {
  const Nanos watchdog = watchdog_time();
  const Nanos every = watchdog == 0 ? kLookEvery : std::min(kLookEvery, watchdog / 2);
  std::string told;
  bool was_stuck = false;
  bool were_few = false;  // descriptors
  std::unique_lock lock(lock_);
  while (!stopping_) {
    const std::string text = text_;
    news_ = false;
    lock.unlock();
    const Nanos now = monotonic_now();
    watch_.look(now);
    const Status stuck = watch_.check(now);
    if (stuck.ok() && watchdog != 0) tell_alive();
    if (!stuck.ok() && !was_stuck) spdlog::error("{}", stuck.message());
    was_stuck = !stuck.ok();
    const Status files = check_open_files();
    if (!files.ok() && !were_few) spdlog::warn("{}", files.message());
    were_few = !files.ok();
    const std::string shown = stuck.ok() ? text : stuck.message();
    if (shown != told) tell_status(told = shown);
    show_health(ready().ok(), stuck.ok());
    lock.lock();
    changed_.wait_for(lock, std::chrono::nanoseconds(every), [&] { return stopping_ || news_; });
  }
}

}  // namespace gradbus
