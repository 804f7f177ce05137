// The rates of a rank's work in the last seconds, from the reports of its agent.
//
// Reports come twice a second, so one interval counts 1 or 2 of a rank's three operations a second
// and the rate would jump between 2.0 and 4.0. Five seconds bound that error to 0.2 a second.
#pragma once

#include <cstdint>
#include <deque>

#include "common/clock.h"

namespace gradbus {

class RateWindow {
 public:
  struct Count {
    Nanos at = 0;
    uint64_t operations = 0;
    uint64_t bytes = 0;
    uint64_t wait_ns = 0;
  };

  void add(const Count& count);

  // Zero when the last report is older than kSilence: such a rank may be dead.
  double operations_per_s(Nanos now) const;
  double bytes_per_s(Nanos now) const;
  // The share of the time that the rank waited for others, 0 to 1.
  double waiting(Nanos now) const;
  // Long enough to compare ranks.
  bool full(Nanos now) const;

 private:
  static constexpr Nanos kLength = 5 * kSecond;
  static constexpr Nanos kSilence = 3 * kSecond;
  static constexpr size_t kCountsMax = 64;

  double elapsed(Nanos now) const;  // seconds; 0: there is nothing to divide

  std::deque<Count> counts_;
};

}  // namespace gradbus
