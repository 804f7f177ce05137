// How long a thread without work spins before it sleeps. Pure; one thread.
//
// Sleeping and waking up costs about 10 us. So spinning for a little longer than the usual pause
// saves time, and spinning while no work comes wastes a processor. The length follows the recent
// pauses: `score` is the share of late pauses that were short, each with a weight of a quarter.
// While it is below a quarter the thread does not spin, so a silent link costs nothing. Pauses
// during sleep are measured too, so regular work starts the spinning again.
#pragma once

#include <algorithm>

#include "common/clock.h"

namespace gradbus {

class AdaptiveSpin {
 public:
  static constexpr Nanos kLengthMin = 5'000;
  static constexpr Nanos kLengthMax = 50'000;

  // 0: sleep at once.
  Nanos length() const {
    return score_ < kScoreMin ? 0 : std::clamp(2 * short_pause_, kLengthMin, kLengthMax);
  }

  // Reports a pause of this length that work has ended.
  void paused(Nanos pause) {
    const bool was_short = pause <= kLengthMax;
    score_ += ((was_short ? 1.0 : 0.0) - score_) * kWeight;
    if (was_short)
      short_pause_ += static_cast<Nanos>(static_cast<double>(pause - short_pause_) * kWeight);
  }

 private:
  static constexpr double kWeight = 0.25;
  static constexpr double kScoreMin = 0.25;

  double score_ = 0.5;  // three long pauses stop spinning, a short one starts it again
  Nanos short_pause_ = 15'000;
};

}  // namespace gradbus
