#include "cli/process/stop_ladder.h"

#include <algorithm>

namespace gradbus {

void StopLadder::failure(Nanos now) {
  if (step_ != Step::kRunning) return;
  step_ = Step::kGrace;
  next_ = now + kFailureGrace;
}

void StopLadder::request(Nanos now) {
  if (step_ == Step::kRunning) step_ = Step::kGrace;
  next_ = std::min(next_, now);
}

Press StopLadder::due(Nanos now) {
  if (now < next_ || step_ == Step::kKilling) return Press::kNone;
  if (step_ == Step::kGrace) {
    step_ = Step::kTerminating;
    next_ = now + kTerminateGrace;
    return Press::kTerminate;
  }
  step_ = Step::kKilling;
  next_ = kNever;
  return Press::kKill;
}

Nanos StopLadder::deadline() const { return next_; }

}  // namespace gradbus
