// What one turn of a poll loop waits for. Filled anew each turn; main thread only.
#pragma once

#include <poll.h>

#include <vector>

#include "common/clock.h"

namespace gradbus {

class PollSet {
 public:
  void clear();
  void watch(int fd, short events);
  // Waits until something is ready or `deadline` (monotonic) has passed.
  void wait_until(Nanos deadline);
  // What poll reported for `fd`; 0 when it is quiet or was not watched.
  short events(int fd) const;

 private:
  std::vector<pollfd> entries_;
  std::vector<int> index_of_;  // by descriptor; -1: not watched
};

}  // namespace gradbus
