#include "worker_agent/control/readiness.h"

#include <unistd.h>

#include <utility>

#include "common/daemon/daemon_monitor.h"
#include "common/log.h"

namespace gradbus {

void Readiness::serving() {
  if (monitor_ != nullptr) monitor_->set_ready({}, "serving; coordinator " + coordinator_);
  write_line();
}

void Readiness::not_serving(const Status& why) {
  if (monitor_ != nullptr) monitor_->set_ready(why, why.message());
}

void Readiness::write_line() {
  const int fd = std::exchange(ready_fd_, -1);
  if (fd < 0) return;
  const std::string text = line_ + "\n";
  if (write(fd, text.data(), text.size()) < 0) spdlog::warn("no process reads --ready-fd {}", fd);
  close(fd);
}

}  // namespace gradbus
