// Deadlines of the engine and its jobs, on a clock that the test moves. Nothing waits here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>

#include "data_plane/ended_links.h"
#include "tests/unit/data_plane/engine_cluster.h"

namespace gradbus::test {
namespace {

// The kinds of events that have come from `transport` since the last call.
std::vector<TransportEvent::Kind> events_of(Transport& transport) {
  std::array<TransportEvent, 8> events;
  std::vector<TransportEvent::Kind> kinds;
  for (size_t count = transport.poll(events); count > 0; count = transport.poll(events))
    for (size_t i = 0; i < count; ++i) kinds.push_back(events[i].kind);
  return kinds;
}

// A link may come before its job. Expect: it is refused 5 s later, and not before.
TEST(EngineClock, ALinkOfAnUnknownJobIsRefusedAfterItsDeadline) {
  using Kind = TransportEvent::Kind;
  ManualClock clock;
  Cluster cluster({.agents = 1, .transport = [&] { return loopback_by(clock); }});
  const std::unique_ptr<Transport> peer = loopback_by(clock);
  FrameHeader hello{};
  hello.kind = static_cast<uint8_t>(FrameKind::kHello);
  hello.job = kJob + 1;
  ASSERT_TRUE(peer->connect(cluster.nodes[0]->address, hello).ok());
  cluster.turn(20);
  EXPECT_THAT(events_of(*peer), testing::ElementsAre(Kind::kConnected));
  clock.advance(5 * kSecond - 1);
  cluster.turn(20);
  EXPECT_THAT(events_of(*peer), testing::IsEmpty());
  clock.advance(1);
  cluster.turn(20);
  EXPECT_THAT(events_of(*peer), testing::ElementsAre(Kind::kClosed));
}

// A shard's link ends, and the job could continue without the shard. Expect: the job waits for the
// coordinator's report until the deadline, and then ends.
TEST(EngineClock, ALostShardThatNobodyReportsEndsTheJob) {
  ManualClock clock;
  Cluster cluster({.agents = 2, .shards = 2, .transport = [&] { return loopback_by(clock); }});
  TensorSpec spec;
  spec.count = 100;
  cluster.add_on_shards(0, spec, 10, "ps:sync,replicas=2");
  cluster.turn(100);
  cluster.nodes.pop_back();
  cluster.turn(100);
  clock.advance(kShardLossDeadline - 1);
  cluster.turn(100);
  EXPECT_TRUE(cluster.nodes[0]->broken.take().empty());
  clock.advance(1);
  cluster.turn(100);
  const std::vector<JobBroken> broken = cluster.nodes[0]->broken.take();
  ASSERT_EQ(broken.size(), 1U);
  EXPECT_EQ(broken[0].status.code(), Code::kPeerLost);
}

// The same while the coordinator is gone. Expect: the job waits for its return, and goes on when it
// then reports the loss, or ends.
TEST(EngineClock, ALostShardIsReportedByACoordinatorThatReturns) {
  for (const bool reported : {true, false}) {
    ManualClock clock;
    Cluster cluster({.agents = 2, .shards = 2, .transport = [&] { return loopback_by(clock); }});
    TensorSpec spec;
    spec.count = 100;
    cluster.add_on_shards(0, spec, 10, "ps:sync,replicas=2");
    cluster.turn(100);
    cluster.nodes.pop_back();
    cluster.turn(100);
    const Nanos at = clock.now() + 3 * kShardLossDeadline;
    for (auto& node : cluster.nodes) node->engine.post(ExpectReports{at});
    clock.advance(2 * kShardLossDeadline);
    cluster.turn(100);
    for (auto& node : cluster.nodes)
      if (reported) node->engine.post(LoseShard{kJob, 1});
    cluster.turn(100);
    EXPECT_TRUE(cluster.nodes[0]->broken.take().empty());
    clock.advance(at - clock.now());
    cluster.turn(100);
    EXPECT_EQ(cluster.nodes[0]->broken.take().size(), reported ? 0U : 1U);
  }
}

}  // namespace
}  // namespace gradbus::test
