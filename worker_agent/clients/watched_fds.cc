#include "worker_agent/clients/watched_fds.h"

namespace gradbus {
namespace {

epoll_event event_for(int fd, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return event;
}

}  // namespace

bool WatchedFds::add(int fd, uint32_t events) {
  epoll_event event = event_for(fd, events);
  return epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
}

void WatchedFds::change(int fd, uint32_t events) {
  epoll_event event = event_for(fd, events);
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
}

void WatchedFds::remove(int fd) { (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr); }

std::span<const int> WatchedFds::wait(int timeout_ms) {
  std::array<epoll_event, 64> events;
  static_assert(events.size() == std::tuple_size_v<decltype(ready_)>);
  const int count =
      epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), timeout_ms);
  const size_t ready = count > 0 ? static_cast<size_t>(count) : 0;
  for (size_t i = 0; i < ready; ++i) ready_[i] = events[i].data.fd;
  return std::span<const int>(ready_).first(ready);
}

}  // namespace gradbus
