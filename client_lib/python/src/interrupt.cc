// See interrupt.h.
#include "interrupt.h"

#include <csignal>

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>

namespace gradbus::python {
namespace {

std::atomic<uint64_t> interrupts{0};
static_assert(std::atomic<uint64_t>::is_always_lock_free, "a signal handler adds to it");
struct sigaction next_action;  // Python's. Written once, so whoever calls this handler ends there.

thread_local std::optional<uint64_t> interrupts_before;

void count_interrupt(int number, siginfo_t* info, void* context) {
  interrupts.fetch_add(1);
  if ((next_action.sa_flags & SA_SIGINFO) != 0)
    next_action.sa_sigaction(number, info, context);
  else
    next_action.sa_handler(number);
}

bool is_function(const struct sigaction& action) {
  if ((action.sa_flags & SA_SIGINFO) != 0) return action.sa_sigaction != nullptr;
  return action.sa_handler != SIG_DFL && action.sa_handler != SIG_IGN;
}

// Counts interrupts in front of Python's handler. A script that sets another one in Python has the
// same native handler, and takes ours away by that. Whoever ignores Ctrl-C goes on to.
void count_interrupts() {
  static std::mutex mutex;
  static bool has_next = false;
  const std::lock_guard lock(mutex);
  struct sigaction now {};
  if (sigaction(SIGINT, nullptr, &now) != 0 || !is_function(now)) return;
  if (now.sa_sigaction == count_interrupt) return;
  if (has_next && now.sa_handler != next_action.sa_handler) return;
  if (!has_next) next_action = now;
  has_next = true;
  now.sa_sigaction = count_interrupt;
  now.sa_flags |= SA_SIGINFO;
  sigaction(SIGINT, &now, nullptr);
}

}  // namespace

void stand_for_main_thread(bool stands) {
  if (stands) count_interrupts();
  interrupts_before = stands ? std::optional(interrupts.load()) : std::nullopt;
}

bool is_interrupted() { return interrupts_before && *interrupts_before != interrupts.load(); }

}  // namespace gradbus::python
