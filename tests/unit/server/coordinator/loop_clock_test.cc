// A coordinator whose process stood still: what its clock leaves out.
#include "server/coordinator/loop_clock.h"

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus::test {
namespace {

TEST(LoopClock, GoesWithTheMachinesWhileTurnsCome) {
  LoopClock clock(5 * kSecond);
  for (Nanos now = 5 * kSecond; now < 9 * kSecond; now += LoopClock::kGapMax) {
    EXPECT_EQ(clock.turn(now), now);
    EXPECT_EQ(clock.last_pause(), 0);
  }
}

TEST(LoopClock, LeavesAPauseOut) {
  LoopClock clock(0);
  EXPECT_EQ(clock.turn(LoopClock::kGapMax + 30 * kSecond), LoopClock::kGapMax);
  EXPECT_EQ(clock.last_pause(), 30 * kSecond);
  EXPECT_EQ(clock.turn(LoopClock::kGapMax + 31 * kSecond),
            2 * LoopClock::kGapMax);  // a shorter one
  EXPECT_EQ(clock.last_pause(), kSecond - LoopClock::kGapMax);
}

TEST(LoopClock, StandsStillWhileTheCoordinatorIsDeaf) {
  LoopClock clock(0);
  clock.set_deaf(true);
  for (int turn = 1; turn <= 50; ++turn) EXPECT_EQ(clock.turn(turn * 100 * kMillisecond), 0);
  clock.set_deaf(false);
  EXPECT_EQ(clock.turn(5100 * kMillisecond), 100 * kMillisecond);
}

TEST(LoopClock, AnAgentKeepsItsLeaseOverThePauseAndNotForever) {
  Cluster cluster;
  LoopClock clock(cluster.now);
  Nanos machine = cluster.now;
  const auto turn = [&](Nanos after) {
    machine += after;
    cluster.now = clock.turn(machine);
    cluster.coordinator.tick(cluster.now);
    cluster.collect();
  };
  cluster.hello(1, "node-a");
  turn(100 * kMillisecond);
  turn(30 * kSecond);
  EXPECT_TRUE(cluster.closed.empty());
  for (int i = 0; i < 14; ++i) turn(100 * kMillisecond);
  EXPECT_TRUE(cluster.closed.contains(1));
}

TEST(LoopClock, LeasesBeginAgainAfterDeafness) {
  Cluster cluster;
  const Nanos lease = Nanos{CoordinatorOptions{}.lease_ms} * kMillisecond;
  cluster.hello(1, "node-a");
  for (int i = 0; i < 5; ++i) {
    cluster.now += lease - kMillisecond;
    cluster.coordinator.renew_leases(cluster.now);
    cluster.coordinator.tick(cluster.now);
    cluster.collect();
    ASSERT_TRUE(cluster.closed.empty());
  }
  cluster.now += lease + kMillisecond;
  cluster.coordinator.tick(cluster.now);
  cluster.collect();
  EXPECT_TRUE(cluster.closed.contains(1));
}

}  // namespace
}  // namespace gradbus::test
