// The limit of open descriptors. A client needs four, a link of a job a few more, and each
// connection of another daemon or a command one. The usual soft limit of 1,024 is too low.
#pragma once

#include <sys/resource.h>

namespace gradbus {

// Up to the hard limit.
inline void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)setrlimit(RLIMIT_NOFILE, &limit);
}

}  // namespace gradbus
