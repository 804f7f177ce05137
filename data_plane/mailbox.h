// Passes records from any thread to one role. Control plane only: it has a lock, and an eventfd so
// that the owner can sleep on it with epoll. take() returns everything posted so far, in order.
// While nothing was posted it costs one load, so a busy role may call it every turn.
#pragma once

#include <sys/eventfd.h>

#include <atomic>
#include <mutex>
#include <utility>
#include <vector>

#include "common/fd.h"

namespace gradbus {

template <typename T>
class Mailbox {
 public:
  void post(T record) {
    const std::lock_guard lock(lock_);
    records_.push_back(std::move(record));
    posted_.store(true, std::memory_order_release);
    // Under the lock: otherwise take() could run first and leave it readable.
    eventfd_write(event_.get(), 1);
  }

  std::vector<T> take() {
    if (!posted_.load(std::memory_order_acquire)) return {};
    const std::lock_guard lock(lock_);
    eventfd_t count = 0;
    eventfd_read(event_.get(), &count);
    posted_.store(false, std::memory_order_relaxed);
    return std::exchange(records_, {});
  }

  int fd() const { return event_.get(); }

 private:
  std::mutex lock_;
  std::vector<T> records_;
  std::atomic<bool> posted_{false};
  Fd event_{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};
};

}  // namespace gradbus
