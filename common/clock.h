// Monotonic time. Pure code takes `now` as an argument. Engines, their jobs and transports read the
// clock that they were given, so tests and simulations can drive a whole node. Only edges call
// monotonic_now(); scripts/checks/arrows.py refuses it elsewhere.
#pragma once

#include <time.h>

#include <cstdint>

namespace gradbus {

using Nanos = int64_t;

inline constexpr Nanos kMillisecond = 1'000'000;
inline constexpr Nanos kSecond = 1'000 * kMillisecond;

inline Nanos monotonic_now() {
  timespec time{};
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * kSecond + time.tv_nsec;
}

// A source of `now`. Any thread.
class Clock {
 public:
  virtual Nanos now() const = 0;

 protected:
  ~Clock() = default;
};

// The machine's clock, which daemons use.
inline const Clock& monotonic_clock() {
  struct Monotonic final : Clock {
    Nanos now() const override { return monotonic_now(); }
  };
  static const Monotonic clock;
  return clock;
}

}  // namespace gradbus
