// The clock for the coordinator's decisions. It runs only while the coordinator works.
//
// A process that was stopped, or got no processor, has read no message. Leases and deadlines must
// not count that time as silence of agents. The coordinator's loop turns at least every kTurnMs. If
// a turn takes longer than kGapMax, the clock leaves out the excess. It also leaves out the time in
// which the loop turns but messages are not read (self_call.h, own_load.h). It never goes back.
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
