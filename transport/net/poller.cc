#include "transport/net/poller.h"

#include <sys/eventfd.h>
#include <sys/timerfd.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "common/system_error.h"

namespace gradbus {

Status Poller::open(Nanos tick_interval) {
  tick_interval_ = tick_interval;
  epoll_.reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.reset(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  timer_.reset(timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!epoll_.valid() || !add(wake_.get(), EPOLLIN, kWake) || !add(timer_.get(), EPOLLIN, kTick)) {
    return system_error("D603", "no descriptors for the data plane", errno,
                        "raise the limit on open files: ulimit -n");
  }
  return {};
}

bool Poller::watch_listener(int fd) { return add(fd, EPOLLIN, kListener); }

bool Poller::watch_completions(int fd) { return add(fd, EPOLLIN, kCompletions); }

bool Poller::watch_inner(int fd, uint64_t number) { return add(fd, EPOLLIN, kFirstInner + number); }

bool Poller::watch(int fd, void* connection) {
  return add(fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET,
             reinterpret_cast<uintptr_t>(connection));
}

void Poller::forget(int fd) { (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<epoll_event> Poller::ready(std::span<epoll_event> events) {
  const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), 0);
  return events.first(count > 0 ? static_cast<size_t>(count) : 0);
}

void Poller::wake() {
  if (awake_) return;
  awake_ = true;
  (void)eventfd_write(wake_.get(), 1);
}

void Poller::calm() {
  if (!awake_) return;
  awake_ = false;
  eventfd_t count = 0;
  (void)eventfd_read(wake_.get(), &count);
}

void Poller::start_ticks() {
  if (ticking_) return;
  ticking_ = true;
  set_timer(tick_interval_);
}

void Poller::stop_ticks() {
  if (!ticking_) return;
  ticking_ = false;
  set_timer(0);
}

void Poller::end_tick() {
  uint64_t expirations = 0;
  (void)!read(timer_.get(), &expirations, sizeof(expirations));
}

bool Poller::add(int fd, uint32_t events, uint64_t data) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = data;
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void Poller::set_timer(Nanos interval) {
  itimerspec spec{};
  spec.it_value = {interval / kSecond, interval % kSecond};
  spec.it_interval = spec.it_value;
  (void)timerfd_settime(timer_.get(), 0, &spec, nullptr);
}

}  // namespace gradbus
