// LogQueue: writes records of a log without waiting for whoever reads them.
//
// A reader may stop: a terminal after Ctrl-S, a pipe that nobody empties, a journal that hangs.
// Then a daemon that waits for it would lose its lease, and its jobs. So a record that cannot be
// written at once waits in a queue, and a thread writes it later. Beyond kLogQueueBytes the newest
// records are dropped; their number is logged as soon as the reader goes on.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

namespace gradbus {

inline constexpr size_t kLogQueueBytes = 1 << 20;

class LogQueue {
 public:
  // How a record is written. The queue is never destroyed, because its thread may wait for ever.
  struct Target {
    // Writes what it can without waiting; how many bytes.
    std::function<size_t(std::string_view)> write_now;
    // Writes all; may wait.
    std::function<void(std::string_view)> write;
    // `lost` more records were lost. It may call put().
    std::function<void(uint64_t lost)> on_lost;
  };

  explicit LogQueue(Target target) : target_(std::move(target)) {}

  // Any thread. It waits for nobody but other callers.
  void put(std::string_view record);
  // Waits until everything is written, for at most `limit`.
  void flush(std::chrono::milliseconds limit);
  // As flush(), at the end of the process: on_lost() is not called any more.
  void finish(std::chrono::milliseconds limit);
  // Records that were dropped so far.
  uint64_t lost() const;

 private:
  bool start_thread();
  void run();
  void tell(std::unique_lock<std::mutex>& lock);
  void write_front(std::unique_lock<std::mutex>& lock);

  const Target target_;
  mutable std::mutex mutex_;
  std::condition_variable added_;
  std::condition_variable emptied_;
  std::deque<std::string> waiting_;
  size_t waiting_bytes_ = 0;
  uint64_t lost_ = 0;
  uint64_t told_ = 0;  // of lost_, to on_lost()
  bool has_thread_ = false;
  bool finished_ = false;
};

// The process's stderr as a target of text: writes at once where the kernel can say that this does
// not wait.
LogQueue::Target stderr_target(std::function<void(uint64_t lost)> on_lost);

}  // namespace gradbus
