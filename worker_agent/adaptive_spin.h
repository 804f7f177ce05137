// How long a thread that has found nothing to do looks on before it sleeps. Pure; one thread.
//
// Falling asleep and being woken costs some 10 us, so looking on for a little longer than work
// usually stays away pays, and looking on while none comes burns a processor. So it follows what
// came: `score` is the share of late pauses that were short, each weighing a quarter; while it is
// below a quarter there is no spin at all, and a silent link costs nothing. Pauses that were slept
// through are measured, too, so work that keeps coming brings the spin back.
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

  // Nothing was to be done for so long; then something was.
  void paused(Nanos pause) {
    const bool was_short = pause <= kLengthMax;
    score_ += ((was_short ? 1.0 : 0.0) - score_) * kWeight;
    if (was_short)
      short_pause_ += static_cast<Nanos>(static_cast<double>(pause - short_pause_) * kWeight);
  }

 private:
  static constexpr double kWeight = 0.25;
  static constexpr double kScoreMin = 0.25;

  double score_ = 0.5;  // three long pauses end it, a short one begins it again
  Nanos short_pause_ = 15'000;
};

}  // namespace gradbus
