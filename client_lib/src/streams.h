// The streams of a session that are under way. They make progress only inside the library, so
// threads that wait for something else advance them too, and sleep where the stream's next chunk
// wakes them. Any thread.
#pragma once

#include <atomic>

#include "client_lib/src/session_registry.h"
#include "shared_memory/local_reduction.h"

namespace gradbus {

class Streams {
 public:
  explicit Streams(SessionRegistry& registry) : registry_(registry) {}
  ~Streams() { registry_.streams.fetch_sub(count_.load()); }
  Streams(const Streams&) = delete;
  Streams& operator=(const Streams&) = delete;

  void begin(LocalReduction& local_reduction) {
    count(1);
    newest_.store(&local_reduction, std::memory_order_release);
  }
  void end(LocalReduction& local_reduction) {
    LocalReduction* ended = &local_reduction;
    newest_.compare_exchange_strong(ended, nullptr);
    count(-1);
  }
  // Where a thread sleeps that waits for `own`: at a stream that needs it, unless it waits for a
  // stream itself.
  LocalReduction& to_watch(LocalReduction& own, bool is_stream) const {
    LocalReduction* const stream = is_stream ? nullptr : newest_.load(std::memory_order_acquire);
    return stream == nullptr ? own : *stream;
  }

 private:
  void count(int change) {
    count_.fetch_add(change, std::memory_order_relaxed);
    registry_.streams.fetch_add(change, std::memory_order_relaxed);
  }

  SessionRegistry& registry_;
  std::atomic<int> count_{0};
  std::atomic<LocalReduction*> newest_{nullptr};
};

}  // namespace gradbus
