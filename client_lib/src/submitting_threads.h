// Which threads begin a session's operations, and so whether a wait of one thread blocks the rank.
//
// A training loop has one such thread: the main one, or the only one that begins operations. While
// it waits, nothing new begins. Backward passes may run in threads of their own, but then the loop
// waits for them. Any other thread may wait while the loop computes. Any thread.
#pragma once

#include <sys/types.h>

#include <atomic>

namespace gradbus {

class SubmittingThreads {
 public:
  // `independent_threads`: several threads begin operations independently, so no wait blocks the
  // rank.
  explicit SubmittingThreads(bool independent_threads)
      : independent_threads_(independent_threads) {}

  // This thread begins an operation.
  void note_current_thread();
  // Whether the rank cannot begin operations while this thread waits.
  bool blocked_with_this_thread() const;

 private:
  const bool independent_threads_;
  std::atomic<pid_t> first_{0};
  std::atomic<bool> several_{false};
};

// The calling thread begins operations and waits for that one, which does nothing meanwhile.
void act_for_thread(pid_t thread);

}  // namespace gradbus
