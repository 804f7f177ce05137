// Whether this agent can serve clients: for its health page, and for the program that started it.
// Conductor thread only.
#pragma once

#include <string>

#include "common/status.h"

namespace gradbus {

class DaemonMonitor;

class Readiness {
 public:
  // `monitor` may be null. `ready_fd` gets one line of JSON, `line`, when clients can be served; it
  // is closed then. -1: nobody waits for it.
  Readiness(DaemonMonitor* monitor, std::string coordinator, int ready_fd, std::string line)
      : monitor_(monitor),
        coordinator_(std::move(coordinator)),
        ready_fd_(ready_fd),
        line_(std::move(line)) {}

  // It serves, since the coordinator knows it.
  void serving();
  // It cannot serve new jobs for this reason.
  void not_serving(const Status& why);

 private:
  void write_line();

  DaemonMonitor* const monitor_;
  const std::string coordinator_;
  int ready_fd_;
  const std::string line_;
};

}  // namespace gradbus
