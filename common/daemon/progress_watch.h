// Sees whether the threads of a daemon still make progress. Each thread counts its turns; one that
// has not counted for long is stuck. Any thread.
#pragma once

#include <deque>
#include <mutex>
#include <string>

#include "common/clock.h"
#include "common/metrics/metric_page.h"
#include "common/metrics/tally.h"
#include "common/status.h"

namespace gradbus {

// A thread without work still wakes once a second, and may need seconds for one large allocation.
inline constexpr Nanos kStuckAfter = 10 * kSecond;

class ProgressWatch {
 public:
  // `turns` must live until the last call.
  void add(const std::string& thread, const Tally& turns) {
    const std::lock_guard lock(lock_);
    threads_.push_back({thread, &turns});
  }

  // Called about every second: notes which threads have moved.
  void look(Nanos now);
  // X002 for the first thread that has not moved for kStuckAfter.
  Status check(Nanos now) const;
  void add_to(MetricPage& page, Nanos now) const;

 private:
  struct Thread {
    std::string name;
    const Tally* turns;
    uint64_t seen = 0;
    Nanos moved = 0;  // 0: not looked at yet
  };

  mutable std::mutex lock_;
  std::deque<Thread> threads_;
};

}  // namespace gradbus
