// A small process that cleans up when the launcher is killed with SIGKILL. It waits on a pipe. When
// the launcher has ended, it kills the registered process groups and removes the registered
// directory. Ranks also have a parent-death signal, but that does not reach their children.
//
// Main thread only. Start it before any other child, so that it holds none of their pipes.
#pragma once

#include <sys/types.h>

#include <string>

#include "cli/process/child.h"
#include "common/fd.h"
#include "common/status.h"

namespace gradbus {

class OrphanGuard {
 public:
  static Result<OrphanGuard> start();
  OrphanGuard(OrphanGuard&&) = default;
  OrphanGuard& operator=(OrphanGuard&&) = default;
  // The launcher has cleaned up itself by now: forgets everything, waits for the process' end.
  ~OrphanGuard();

  void watch_group(pid_t group);
  void forget_group(pid_t group);
  void watch_directory(const std::string& path);
  void forget_directory();

 private:
  OrphanGuard(Child child, Fd pipe);

  Child child_;
  Fd pipe_;
};

}  // namespace gradbus
