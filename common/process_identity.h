// Identifies another process where pidfd_open() is refused, and says whether it still runs.
//
// The start time distinguishes the process from a later one with the same number. A call reads one
// small file of /proc, which is cheap enough for a few times a second.
#pragma once

#include <sys/types.h>

#include <cstdint>

namespace gradbus {

class ProcessIdentity {
 public:
  ProcessIdentity() = default;  // of no process: never ended
  explicit ProcessIdentity(pid_t pid);

  // True once it has ended, also while its parent has not waited for it.
  bool ended() const;

 private:
  pid_t pid_ = 0;
  uint64_t started_ = 0;  // clock ticks since the machine's start; 0: /proc cannot be read
};

}  // namespace gradbus
