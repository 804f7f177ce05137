// CPU time of all processes of a benchmark: the ranks and the daemons, which are all children of
// one launcher. Any thread.
#pragma once

#include <sys/types.h>

#include <filesystem>
#include <string_view>
#include <vector>

namespace gradbus {

// Field 4 of a /proc/PID/stat file; the name before it, in parentheses, may hold anything. -1: that
// process has ended.
pid_t parent_in(const std::filesystem::path& stat);

class ProcessCpu {
 public:
  // The processes that have `parent` now; of them those with `argument` on their command line.
  static ProcessCpu children_of(pid_t parent);
  static ProcessCpu children_with(std::string_view argument, pid_t parent);
  explicit ProcessCpu(std::vector<pid_t> pids) : pids_(std::move(pids)) {}

  // User and system time of all of them since they began; those that have ended do not count.
  double seconds() const;
  size_t processes() const { return pids_.size(); }

 private:
  std::vector<pid_t> pids_;
};

}  // namespace gradbus
