// How a job is ended: first time to end by itself, then politely, then for certain. Pure.
//
//   a rank failed:  5 s of grace (the daemons tell the others) -> SIGTERM -> 2 s -> SIGKILL
//   asked to stop:  SIGTERM at once -> 2 s -> SIGKILL;  asked twice: SIGKILL at once
#pragma once

#include "common/clock.h"

namespace gradbus {

inline constexpr Nanos kFailureGrace = 5 * kSecond;
inline constexpr Nanos kTerminateGrace = 2 * kSecond;
inline constexpr Nanos kNever = INT64_MAX / 2;

enum class Press { kNone, kTerminate, kKill };

class StopLadder {
 public:
  void failure(Nanos now);
  void request(Nanos now);
  // What is due at `now`; each press is given once.
  Press due(Nanos now);
  // When due() must be called next, or kNever.
  Nanos deadline() const;
  bool stopping() const { return step_ != Step::kRunning; }

 private:
  enum class Step { kRunning, kGrace, kTerminating, kKilling };

  Step step_ = Step::kRunning;
  Nanos next_ = kNever;  // when the step above this one begins
};

}  // namespace gradbus
