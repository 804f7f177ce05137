#include "common/daemon/progress_watch.h"

#include <algorithm>

#include "common/errors.h"

namespace gradbus {

void ProgressWatch::look(Nanos now) {
  const std::lock_guard lock(lock_);
  for (Thread& thread : threads_) {
    const uint64_t turns = thread.turns->value();
    if (thread.moved != 0 && turns == thread.seen) continue;
    thread.seen = turns;
    thread.moved = now;
  }
}

Status ProgressWatch::check(Nanos now) const {
  const std::lock_guard lock(lock_);
  for (const Thread& thread : threads_) {
    if (thread.moved == 0 || thread.turns->value() != thread.seen) continue;
    if (now - thread.moved < kStuckAfter) continue;
    return error("X002", "the " + thread.name + " thread has made no progress for " +
                             std::to_string((now - thread.moved) / kSecond) + " s");
  }
  return {};
}

void ProgressWatch::add_to(MetricPage& page, Nanos now) const {
  const std::lock_guard lock(lock_);
  for (const Thread& thread : threads_) {
    const bool still = thread.moved != 0 && thread.turns->value() == thread.seen;
    const Nanos idle = still ? std::max<Nanos>(now - thread.moved, 0) : 0;
    page.add(Metric::kThreadIdle, {thread.name}, static_cast<double>(idle) * 1e-9);
  }
}

}  // namespace gradbus
