// See log_queue.h.
#include "common/daemon/log_queue.h"

#include <limits.h>
#include <poll.h>
#include <pthread.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <system_error>
#include <thread>
#include <utility>

namespace gradbus {
namespace {

bool is_writable(int fd, int timeout_ms) {
  pollfd asked{fd, POLLOUT, 0};
  return poll(&asked, 1, timeout_ms) == 1;
}

// One write of at most `bytes`. -1 with EAGAIN: it would wait.
ssize_t write_without_waiting(int fd, std::string_view text) {
  const iovec part{const_cast<char*>(text.data()), text.size()};
  const ssize_t done = pwritev2(fd, &part, 1, -1, RWF_NOWAIT);
  if (done >= 0 || (errno != EOPNOTSUPP && errno != EINVAL && errno != ENOSYS && errno != ESPIPE))
    return done;
  if (!is_writable(fd, 0)) {
    errno = EAGAIN;
    return -1;
  }
  return write(fd, text.data(), std::min<size_t>(text.size(), PIPE_BUF));  // pipe(7): room for it
}

// What is taken. A reader that has gone takes everything.
size_t write_now(int fd, std::string_view text) {
  size_t done = 0;
  while (done < text.size()) {
    const ssize_t bytes = write_without_waiting(fd, text.substr(done));
    if (bytes > 0) {
      done += static_cast<size_t>(bytes);
    } else if (bytes == 0 || errno == EAGAIN) {
      return done;
    } else if (errno != EINTR) {
      return text.size();
    }
  }
  return done;
}

void write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    is_writable(fd, -1);  // of a descriptor that does not wait itself
    const ssize_t bytes = write(fd, text.data(), text.size());
    if (bytes > 0)
      text.remove_prefix(static_cast<size_t>(bytes));
    else if (errno != EAGAIN && errno != EINTR)
      return;  // the reader has gone
  }
}

}  // namespace

void LogQueue::put(std::string_view record) {
  const std::lock_guard lock(mutex_);
  if (waiting_.empty()) record.remove_prefix(target_.write_now(record));
  if (record.empty()) return;
  if (waiting_bytes_ + record.size() > kLogQueueBytes || !start_thread()) {
    ++lost_;
    return;
  }
  waiting_bytes_ += record.size();
  waiting_.emplace_back(record);
  added_.notify_one();
}

void LogQueue::flush(std::chrono::milliseconds limit) {
  std::unique_lock lock(mutex_);
  emptied_.wait_for(lock, limit, [this] { return waiting_.empty(); });
}

void LogQueue::finish(std::chrono::milliseconds limit) {
  flush(limit);
  const std::lock_guard lock(mutex_);
  finished_ = true;
}

uint64_t LogQueue::lost() const {
  const std::lock_guard lock(mutex_);
  return lost_;
}

// With the lock held. Signals are for the program's own threads.
bool LogQueue::start_thread() {
  if (has_thread_) return true;
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_BLOCK, &all, &before);
  try {
    std::thread([this] { run(); }).detach();
    has_thread_ = true;
  } catch (const std::system_error&) {
    // No more threads: the record is lost, and counted.
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return has_thread_;
}

void LogQueue::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    added_.wait(lock, [this] { return !waiting_.empty(); });
    write_front(lock);
    if (!waiting_.empty()) continue;
    emptied_.notify_all();
    if (lost_ > told_ && !finished_) tell(lock);
  }
}

void LogQueue::tell(std::unique_lock<std::mutex>& lock) {
  const uint64_t lost = lost_ - std::exchange(told_, lost_);
  lock.unlock();
  target_.on_lost(lost);
  lock.lock();
}

// The record stays in front meanwhile, so that put() queues behind it.
void LogQueue::write_front(std::unique_lock<std::mutex>& lock) {
  const std::string& record = waiting_.front();
  lock.unlock();
  target_.write(record);
  lock.lock();
  waiting_bytes_ -= waiting_.front().size();
  waiting_.pop_front();
}

LogQueue::Target stderr_target(std::function<void(uint64_t lost)> on_lost) {
  return {[](std::string_view text) { return write_now(STDERR_FILENO, text); },
          [](std::string_view text) { write_all(STDERR_FILENO, text); }, std::move(on_lost)};
}

}  // namespace gradbus
