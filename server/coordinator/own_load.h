// How busy gRPC's threads of this process are.
//
// gRPC reads a connection when one of its threads is free. Under a flood of calls, or without a
// processor, that takes seconds. Meanwhile messages of one connection wait while calls of others
// are answered. So an agent does not count as silent while these threads always had work.
//
// One thread.
#pragma once

#include <sys/types.h>

#include <map>

#include "common/clock.h"

namespace gradbus {

class OwnLoad {
 public:
  // Whether they always had work, in the last kEvery. Never where the kernel does not tell.
  bool is_full(Nanos now) {
    if (now - looked_ >= kEvery) full_ = look(now) > kLoadMax;
    return full_;
  }

 private:
  static constexpr Nanos kEvery = 500 * kMillisecond;
  static constexpr double kLoadMax = 0.9;  // in processors

  // Processors that they used or waited for since the last call; 0 the first time.
  double look(Nanos now);

  std::map<pid_t, Nanos> busy_;  // by thread: the time that it ran or wanted to run
  Nanos looked_ = 0;
  bool full_ = false;
};

}  // namespace gradbus
