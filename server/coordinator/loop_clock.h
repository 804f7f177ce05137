// The time of the coordinator's decisions: that in which it worked.
//
// A process that was stopped, or got no processor, has heard nobody. Leases, deadlines and patience
// must not count that time as the silence of others. The coordinator's loop turns at least every
// kTurnMs; what a turn takes longer than kGapMax is cut out of this clock. So is the time in which
// it is deaf: it turns, and does not hear those who speak. Never goes back.
#pragma once

#include <algorithm>

#include "common/clock.h"

namespace gradbus {

class LoopClock {
 public:
  static constexpr int kTurnMs = 100;
  static constexpr Nanos kGapMax = 3 * kTurnMs * kMillisecond;

  explicit LoopClock(Nanos now) : turned_(now) {}

  // A turn begins at `now` of the machine's clock: what time it is for the loop.
  Nanos turn(Nanos now) {
    const Nanos gap = now - turned_;
    last_pause_ = std::max<Nanos>(gap - kGapMax, 0);
    paused_ += deaf_ ? gap : last_pause_;
    turned_ = now;
    return now - paused_;
  }

  // From the last turn on.
  void set_deaf(bool deaf) { deaf_ = deaf; }

  // Of the last turn; 0: it came in time.
  Nanos last_pause() const { return last_pause_; }

 private:
  Nanos turned_;
  Nanos paused_ = 0;
  Nanos last_pause_ = 0;
  bool deaf_ = false;
};

}  // namespace gradbus
