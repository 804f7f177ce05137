// Tests whether a thread spins before it sleeps, and for how long.
#include "data_plane/adaptive_spin.h"

#include <gtest/gtest.h>

namespace gradbus {
namespace {

constexpr Nanos kMicrosecond = 1'000;

TEST(AdaptiveSpin, ASilentLinkIsNotWaitedForAwake) {
  AdaptiveSpin spin;
  EXPECT_EQ(spin.length(), 30 * kMicrosecond) << "before anything is known";
  int spins = 0;
  for (int pause = 0; pause < 100; ++pause) {
    spins += spin.length() > 0 ? 1 : 0;
    spin.paused(100 * kMillisecond);
  }
  EXPECT_LE(spins, 3);
  EXPECT_EQ(spin.length(), 0);
}

TEST(AdaptiveSpin, WorkThatComesAgainBringsItBack) {
  AdaptiveSpin spin;
  for (int pause = 0; pause < 100; ++pause) spin.paused(kSecond);
  spin.paused(8 * kMicrosecond);
  spin.paused(8 * kMicrosecond);
  EXPECT_GT(spin.length(), 8 * kMicrosecond) << "long enough for the next one";
}

TEST(AdaptiveSpin, ItIsAsLongAsWorkStaysAway) {
  for (const Nanos pause : {3 * kMicrosecond, 10 * kMicrosecond, 20 * kMicrosecond}) {
    AdaptiveSpin spin;
    for (int i = 0; i < 40; ++i) spin.paused(pause);
    EXPECT_NEAR(static_cast<double>(spin.length()), 2.0 * static_cast<double>(pause), 1'500)
        << pause;
  }
  AdaptiveSpin quick, slow;
  for (int i = 0; i < 40; ++i) {
    quick.paused(100);
    slow.paused(AdaptiveSpin::kLengthMax);
  }
  EXPECT_EQ(quick.length(), AdaptiveSpin::kLengthMin);
  EXPECT_EQ(slow.length(), AdaptiveSpin::kLengthMax);
}

// Every other pause is long, so half of the spins find work.
TEST(AdaptiveSpin, AMixtureIsWaitedFor) {
  AdaptiveSpin spin;
  for (int i = 0; i < 100; ++i) {
    spin.paused(i % 2 == 0 ? 10 * kMicrosecond : kMillisecond);
    EXPECT_GT(spin.length(), 0) << i;
  }
}

}  // namespace
}  // namespace gradbus
