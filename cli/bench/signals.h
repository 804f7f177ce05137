// How long a word takes from one core to another: through a line that both look at, and through the
// kernel's futex. Starts two threads, pinned to the cores named.
#pragma once

#include <optional>

#include "common/clock.h"

namespace gradbus {

struct SignalTimes {
  std::optional<double> queue_one_way_ns;  // empty: not even one in its time
  std::optional<double> futex_one_way_ns;
};

// Queue: half a round trip, best of many groups. Futex: from the call to the moment when a thread
// that slept runs again, best of many. Takes about 2 * kSignalTime, whatever else is running.
inline constexpr Nanos kSignalTime = 300 * kMillisecond;
SignalTimes measure_signals(int core, int other_core);

}  // namespace gradbus
