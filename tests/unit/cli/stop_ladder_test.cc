// The ladder's times and presses, under a made-up clock.
#include "cli/process/stop_ladder.h"

#include <gtest/gtest.h>

namespace gradbus {
namespace {

constexpr Nanos kStart = 1'000 * kSecond;

TEST(StopLadder, NothingIsDueWhileAllIsWell) {
  StopLadder ladder;
  EXPECT_FALSE(ladder.stopping());
  EXPECT_EQ(ladder.deadline(), kNever);
  EXPECT_EQ(ladder.due(kStart), Press::kNone);
}

TEST(StopLadder, AFailureLeavesFiveSecondsThenTwo) {
  StopLadder ladder;
  ladder.failure(kStart);
  EXPECT_TRUE(ladder.stopping());
  EXPECT_EQ(ladder.deadline(), kStart + 5 * kSecond);
  EXPECT_EQ(ladder.due(kStart + 5 * kSecond - 1), Press::kNone);
  EXPECT_EQ(ladder.due(kStart + 5 * kSecond), Press::kTerminate);
  EXPECT_EQ(ladder.due(kStart + 5 * kSecond), Press::kNone);
  EXPECT_EQ(ladder.due(kStart + 7 * kSecond - 1), Press::kNone);
  EXPECT_EQ(ladder.due(kStart + 7 * kSecond), Press::kKill);
  EXPECT_EQ(ladder.due(kStart + 60 * kSecond), Press::kNone);
  EXPECT_EQ(ladder.deadline(), kNever);
}

TEST(StopLadder, MoreFailuresDoNotMoveTheEnd) {
  StopLadder ladder;
  ladder.failure(kStart);
  ladder.failure(kStart + 4 * kSecond);
  EXPECT_EQ(ladder.deadline(), kStart + 5 * kSecond);
}

TEST(StopLadder, ARequestTerminatesAtOnce) {
  StopLadder ladder;
  ladder.request(kStart);
  EXPECT_EQ(ladder.due(kStart), Press::kTerminate);
  EXPECT_EQ(ladder.due(kStart + 2 * kSecond - 1), Press::kNone);
  EXPECT_EQ(ladder.due(kStart + 2 * kSecond), Press::kKill);
}

TEST(StopLadder, ASecondRequestKillsAtOnce) {
  StopLadder ladder;
  ladder.request(kStart);
  EXPECT_EQ(ladder.due(kStart), Press::kTerminate);
  ladder.request(kStart + 1);
  EXPECT_EQ(ladder.due(kStart + 1), Press::kKill);
  ladder.request(kStart + 2);
  EXPECT_EQ(ladder.due(kStart + 2), Press::kNone);
}

TEST(StopLadder, ARequestCutsTheGraceOfAFailure) {
  StopLadder ladder;
  ladder.failure(kStart);
  ladder.request(kStart + kSecond);
  EXPECT_EQ(ladder.due(kStart + kSecond), Press::kTerminate);
}

}  // namespace
}  // namespace gradbus
