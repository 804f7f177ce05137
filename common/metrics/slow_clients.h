// Clients of a port that send or read too slowly, or are too many: counted, and reported in one
// line, at once for the first and then at most once a minute. Any thread.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <utility>

#include "common/clock.h"
#include "common/errors.h"
#include "common/log.h"

namespace gradbus {

inline constexpr Nanos kSlowClientsEvery = 60 * kSecond;

class SlowClients {
 public:
  explicit SlowClients(const Clock& clock = monotonic_clock()) : clock_(clock) {}

  // One more. `what` begins with the option that opened the port: "--metrics-listen port N: ...".
  void add(const std::string& what) {
    const uint64_t count = count_to_report();
    if (count == 0) return;
    const std::string more =
        count == 1 ? "" : " (" + std::to_string(count) + " clients since the last such line)";
    spdlog::warn("{}", error("D608", what + more).message());
  }

 private:
  uint64_t count_to_report() {
    const std::lock_guard lock(lock_);
    ++unreported_;
    const Nanos now = clock_.now();
    if (reported_ != 0 && now - reported_ < kSlowClientsEvery) return 0;
    reported_ = now;
    return std::exchange(unreported_, 0);
  }

  const Clock& clock_;
  std::mutex lock_;
  uint64_t unreported_ = 0;
  Nanos reported_ = 0;  // 0: never
};

}  // namespace gradbus
