// Monotonic time. Pure code takes `now` as an argument; only edges call monotonic_now().
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

}  // namespace gradbus
