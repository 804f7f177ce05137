// Whether another process still runs, where no descriptor of it can be had (pidfd_open refused).
//
// The process's start time tells it from a later one with the same number. Cheap enough to ask a
// few times a second: one small file of /proc.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace gradbus {

class ProcessTrace {
 public:
  ProcessTrace() = default;  // of no process: never ended
  explicit ProcessTrace(pid_t pid);

  // True once it has ended, also while its parent has not waited for it.
  bool ended() const;

 private:
  pid_t pid_ = 0;
  uint64_t started_ = 0;  // clock ticks since the machine's start; 0: /proc cannot be read
};

}  // namespace gradbus
