// The waiting side of one transport: an epoll set with an event counter and a timer. One descriptor
// thus tells an outer loop when poll() may have work. One thread owns it.
//
// Connections are watched edge-triggered. A stalled connection with unread bytes must not keep the
// outer loop awake.
#pragma once

#include <sys/epoll.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/clock.h"
#include "common/fd.h"
#include "common/status.h"

namespace gradbus {

class Poller {
 public:
  // Values of epoll_event.data.u64 for the poller's own descriptors and the listener. Any other
  // value is the watched pointer.
  static constexpr uint64_t kWake = 1;
  static constexpr uint64_t kTick = 2;
  static constexpr uint64_t kListener = 3;
  static constexpr uint64_t kCompletions = 4;
  static constexpr uint64_t kFirstInner = 16;  // and above: the inner transports

  Status open(Nanos tick_interval);

  int fd() const { return epoll_.get(); }
  bool watch_listener(int fd);
  // Watches the descriptor on which a device reports completed work (transport/rdma).
  bool watch_completions(int fd);
  // Watches inner transport `number` (transport/failover).
  bool watch_inner(int fd, uint64_t number);
  bool watch(int fd, void* connection);
  void forget(int fd);

  // Never blocks. Returns the filled part of `events`.
  std::span<epoll_event> ready(std::span<epoll_event> events);

  // Makes fd() readable until calm(). Repeated calls cost nothing.
  void wake();
  void calm();

  // A kTick event every interval, while ticking. end_tick() rearms after one was seen.
  void start_ticks();
  void stop_ticks();
  void end_tick();

 private:
  bool add(int fd, uint32_t events, uint64_t data);
  void set_timer(Nanos interval);

  Fd epoll_;
  Fd wake_;
  Fd timer_;
  Nanos tick_interval_ = 0;
  bool awake_ = false;
  bool ticking_ = false;
};

}  // namespace gradbus
