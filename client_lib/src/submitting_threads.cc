#include "client_lib/src/submitting_threads.h"

#include <unistd.h>

#include "client_lib/src/forks.h"

namespace gradbus {
namespace {

struct Acting {
  pid_t thread = 0;  // 0: not known yet
  uint64_t depth = 0;
};
thread_local Acting acting;

pid_t acting_thread() {
  if (acting.thread == 0 || acting.depth != fork_depth()) acting = {gettid(), fork_depth()};
  return acting.thread;
}

}  // namespace

void act_for_thread(pid_t thread) { acting = {thread, fork_depth()}; }

void SubmittingThreads::note_current_thread() {
  const pid_t self = acting_thread();
  pid_t first = first_.load(std::memory_order_relaxed);
  if (first == self) return;
  if (first == 0 && first_.compare_exchange_strong(first, self, std::memory_order_relaxed)) return;
  if (first != self) several_.store(true, std::memory_order_relaxed);
}

bool SubmittingThreads::blocked_with_this_thread() const {
  if (independent_threads_) return false;
  const pid_t self = acting_thread();
  if (self == getpid()) return true;
  return !several_.load(std::memory_order_relaxed) &&
         first_.load(std::memory_order_relaxed) == self;
}

}  // namespace gradbus
