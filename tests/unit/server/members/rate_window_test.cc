// Rates of a rank: from real intervals, steady when reports are not, zero when nobody reports.
#include "server/coordinator/members/rate_window.h"

#include <gtest/gtest.h>

namespace gradbus {
namespace {

constexpr Nanos kHalf = kSecond / 2;

TEST(RateWindow, ThreeOperationsASecondAreThree) {
  RateWindow window;
  for (Nanos at = 0; at <= 20 * kSecond; at += kHalf) {
    const auto done = static_cast<uint64_t>(at * 3 / kSecond);
    window.add({at + kSecond, done, 1000 * done, 0});
    if (at < 5 * kSecond) continue;
    EXPECT_NEAR(window.operations_per_s(at + kSecond), 3, 0.21) << at;
    EXPECT_NEAR(window.bytes_per_s(at + kSecond), 3000, 210) << at;
  }
}

TEST(RateWindow, ALateReportChangesNothing) {
  RateWindow window;
  const Nanos gaps[] = {kHalf, kHalf, 3 * kHalf, kHalf / 5, kHalf, 2 * kHalf, kHalf};
  Nanos at = 0;
  for (const Nanos gap : gaps) {
    at += gap;
    window.add({at, static_cast<uint64_t>(at * 100 / kSecond), 0, static_cast<uint64_t>(at / 4)});
  }
  EXPECT_NEAR(window.operations_per_s(at), 100, 1);
  EXPECT_NEAR(window.waiting(at), 0.25, 1e-6);
}

TEST(RateWindow, SilenceHasNoRate) {
  RateWindow window;
  EXPECT_EQ(window.operations_per_s(0), 0);
  window.add({kSecond, 0, 0, 0});
  EXPECT_EQ(window.operations_per_s(kSecond), 0);
  window.add({3 * kSecond, 10, 0, 0});
  EXPECT_EQ(window.operations_per_s(3 * kSecond), 5);
  EXPECT_TRUE(window.full(3 * kSecond));
  EXPECT_EQ(window.operations_per_s(7 * kSecond), 0);
  EXPECT_FALSE(window.full(7 * kSecond));
}

TEST(RateWindow, CountersThatGoBackBeginAnew) {
  RateWindow window;
  window.add({kSecond, 100, 100, 100});
  window.add({2 * kSecond, 5, 5, 5});
  EXPECT_EQ(window.operations_per_s(2 * kSecond), 0);
  window.add({3 * kSecond, 7, 5, 5});
  EXPECT_EQ(window.operations_per_s(3 * kSecond), 2);
}

}  // namespace
}  // namespace gradbus
