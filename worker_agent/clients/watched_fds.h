// The descriptors for which a thread sleeps: an epoll set that returns those which are ready.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <cstdint>
#include <span>

#include "common/fd.h"

namespace gradbus {

class WatchedFds {
 public:
  // False: the process cannot watch one more.
  bool add(int fd, uint32_t events = EPOLLIN);
  void change(int fd, uint32_t events);
  void remove(int fd);
  // Sleeps until some are ready or the time is over. The result is valid until the next call.
  std::span<const int> wait(int timeout_ms);

 private:
  Fd epoll_{epoll_create1(EPOLL_CLOEXEC)};
  std::array<int, 64> ready_{};
};

}  // namespace gradbus
