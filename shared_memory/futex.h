// Sleep and wake on a 32-bit word in memory that processes share. Linux futex, thin.
#pragma once

#include <linux/futex.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <climits>
#include <cstdint>

#include "common/clock.h"

namespace gradbus {

// Sleeps while `word` equals `expected`, at most `timeout`. May return for any reason, so check
// again.
inline void futex_wait(std::atomic<uint32_t>& word, uint32_t expected, Nanos timeout) {
  const timespec limit{timeout / kSecond, timeout % kSecond};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &limit, nullptr, 0);
}

inline void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace gradbus
