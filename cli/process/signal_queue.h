// SIGINT, SIGTERM and SIGHUP as something to poll. Blocks them, so start it before any child or
// thread exists. A signal that was ignored at start (nohup, a script's background job) stays
// ignored.
#pragma once

#include <optional>

#include "common/fd.h"

namespace gradbus {

class SignalQueue {
 public:
  SignalQueue();

  int fd() const { return fd_.get(); }
  // The next signal that came, never waiting. It is remembered in first().
  std::optional<int> take();
  // The first signal taken, or 0: what the exit code is made of.
  int first() const { return first_; }

 private:
  Fd fd_;
  int first_ = 0;
};

}  // namespace gradbus
