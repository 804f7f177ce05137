// Who is inside a call with a session. Its end refuses new calls and waits for those under way.
// Any thread.
//
// A call costs two atomic additions. It gives its number back before it returns, and the
// gradbus_session outlives that (handles.h).
#pragma once

#include <atomic>
#include <cstdint>

namespace gradbus::capi {

class SessionUses {
 public:
  // False: the session ends, or has ended. True: leave() ends the use.
  bool enter() {
    if ((state_.load(std::memory_order_relaxed) & kEnds) != 0) return false;
    if ((state_.fetch_add(1, std::memory_order_acquire) & kEnds) == 0) [[likely]]
      return true;
    leave();
    return false;
  }
  void leave() {
    if ((state_.fetch_sub(1, std::memory_order_release) & kEnds) != 0) [[unlikely]]
      state_.notify_all();
  }

  // From now on nobody enters. False: another thread has begun the end.
  bool begin_end() { return (state_.fetch_or(kEnds, std::memory_order_acq_rel) & kEnds) == 0; }
  void await_leaving() {
    await([](uint32_t state) { return (state & kUsesMask) == 0; });
  }
  void end() {
    state_.fetch_or(kEnded, std::memory_order_release);
    state_.notify_all();
  }
  void await_end() {
    await([](uint32_t state) { return (state & kEnded) != 0; });
  }

 private:
  static constexpr uint32_t kEnds = uint32_t{1} << 31;
  static constexpr uint32_t kEnded = uint32_t{1} << 30;
  static constexpr uint32_t kUsesMask = kEnded - 1;

  template <typename Condition>
  void await(Condition holds) {
    for (uint32_t now = state_.load(std::memory_order_acquire); !holds(now);
         now = state_.load(std::memory_order_acquire))
      state_.wait(now, std::memory_order_acquire);
  }

  std::atomic<uint32_t> state_{0};
};

}  // namespace gradbus::capi
