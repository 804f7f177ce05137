// CPU time of all processes of a benchmark: the ranks and the daemons, which are all children of
// one launcher. Any thread.
#pragma once

#include <sys/types.h>

#include <vector>

namespace gradbus {

class ProcessCpu {
 public:
  // The processes that have `parent` now.
  static ProcessCpu children_of(pid_t parent);
  explicit ProcessCpu(std::vector<pid_t> pids) : pids_(std::move(pids)) {}

  // User and system time of all of them since they began; those that have ended do not count.
  double seconds() const;
  size_t processes() const { return pids_.size(); }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace gradbus
