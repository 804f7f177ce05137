// A clock that stands still until a test moves it. Any thread.
#pragma once

#include <atomic>

#include "common/clock.h"

namespace gradbus::test {

class ManualClock final : public Clock {
 public:
  Nanos now() const override { return now_.load(); }
  void advance(Nanos by) { now_ += by; }

 private:
  std::atomic<Nanos> now_{1'000 * kSecond};  // not 0, which means "never" to deadlines
};

}  // namespace gradbus::test
