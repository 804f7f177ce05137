// Shards that come and go while a job runs, as the coordinator sees them.
#include <gmock/gmock.h>

#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::error_of;
using test::make_spec;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr uint64_t kShardA = 11, kShardB = 12, kShardC = 13, kShardD = 14;
constexpr Nanos kBatch = 2 * kSecond;

class Moves : public testing::Test {
 protected:
  void start(const std::string& mode = "ps:async") {
    cluster.shard(kShardA, "shard-a");
    cluster.shard(kShardB, "shard-b");
    job = cluster.start_job("train", 2);
    before = ready(mode);
    cluster.clear();
  }
  // Registered by all ranks, with a name of its own or anew.
  v1::ReadyTensor ready(const std::string& mode, const std::string& compression = "",
                        const std::string& name = "w") {
    v1::TensorSpec spec = make_spec(name, 1 << 20);
    spec.set_mode(mode);
    spec.set_compression(compression);
    for (const uint32_t rank : {0, 1})
      cluster.register_tensors(Cluster::agent_of(rank), job, rank, {spec});
    const v1::CoordinatorMessage last = cluster.last(1);
    return last.has_tensors_ready() ? last.tensors_ready().tensors(0) : v1::ReadyTensor();
  }
  // Of the agent's inbox: the last word to its ranks, and of shards.
  std::string asked() {
    std::string mode;
    for (const auto& message : cluster.inbox[1])
      if (message.has_mode_changed()) mode = message.mode_changed().mode();
    return mode;
  }
  v1::ShardsChanged changed(uint64_t node) {
    v1::ShardsChanged found;
    for (const auto& message : cluster.inbox[node])
      if (message.has_shards_changed()) found = message.shards_changed();
    return found;
  }
  std::vector<uint32_t> members(const v1::ShardsChanged& changed) {
    const auto& last = changed.placements(changed.placements_size() - 1).members();
    return {last.begin(), last.end()};
  }
  v1::JobStatus status() { return cluster.status("train").jobs(0); }

  Cluster cluster;
  uint64_t job = 0;
  v1::ReadyTensor before;
};

// Expect: those that come together are taken together; everybody is told of the same placements,
// and the new ones of the job first.
TEST_F(Moves, NewShardsAreTakenTogether) {
  start();
  cluster.shard(kShardC, "shard-c");
  cluster.advance(kSecond / 2);
  cluster.shard(kShardD, "shard-d");
  EXPECT_EQ(asked(), "");
  EXPECT_TRUE(status().shards(2).waits());
  cluster.advance(kBatch);
  ASSERT_EQ(asked(), "placement=1");
  for (const uint64_t node : {uint64_t{1}, uint64_t{2}, kShardA, kShardB, kShardC, kShardD}) {
    EXPECT_EQ(changed(node).placements_size(), 2) << node;
    EXPECT_THAT(members(changed(node)), ElementsAre(0, 1, 2, 3));
  }
  for (const uint64_t node : {kShardC, kShardD}) {
    const v1::JobStarted& started = cluster.inbox[node][1].job_started();  // after the welcome
    EXPECT_EQ(started.job_id(), job);
    EXPECT_EQ(started.shards_size(), 4);
  }
  EXPECT_EQ(status().shards(3).share(), 0);
  EXPECT_THAT(cluster.notes, Contains(HasSubstr("shards have come; after the next fence")));
}

// Expect: the tensor that is registered anew is told what it takes the place of, and where that is.
TEST_F(Moves, ATensorTakesThePlaceOfItsPredecessor) {
  start();
  EXPECT_FALSE(before.has_moved_from());
  cluster.shard(kShardC, "shard-c");
  cluster.advance(kBatch);
  const v1::ReadyTensor after = ready("ps:async,placement=1");
  EXPECT_EQ(after.placement(), 1u);
  EXPECT_EQ(after.moved_from().id(), before.id());
  EXPECT_EQ(after.moved_from().chunk_elements(), before.chunk_elements());
  EXPECT_EQ(after.moved_from().placement(), 0u);
  EXPECT_EQ(cluster.last(kShardC).tensors_ready().tensors(0).id(), after.id());
  for (const int shard : {0, 1, 2}) {
    EXPECT_NEAR(status().shards(shard).share(), 1.0 / 3, 1e-9);
    EXPECT_FALSE(status().shards(shard).waits());
  }
  EXPECT_EQ(ready("ps:async,placement=2").moved_from().placement(), 1u);
}

// Expect: another optimizer, or no option placement=, is another tensor, which begins with nothing.
TEST_F(Moves, AnotherTensorOfTheNameMovesNothing) {
  start();
  cluster.shard(kShardC, "shard-c");
  cluster.advance(kBatch);
  EXPECT_FALSE(ready("ps:async,momentum=0.9,placement=1").has_moved_from());
  EXPECT_FALSE(ready("ps:async").has_moved_from());
}

// Expect: nobody says placement= but for a tensor of that name that lies on shards.
TEST_F(Moves, ATensorWithoutPredecessorHasNoPlacement) {
  const auto refused = [&](const std::string& mode) {
    ready(mode);
    EXPECT_THAT(cluster.last(1).tensor_refused().error().message(),
                AllOf(HasSubstr("GB-O911"), HasSubstr("no tensor of this name is on them"),
                      HasSubstr("leave out placement=")));
  };
  cluster.shard(kShardA, "shard-a");
  job = cluster.start_job("train", 2);
  refused("ps:async,placement=1");
  refused("ps:sync,placement=7");
  ready("sync");
  refused("ps:async,placement=1");
  before = ready("ps:async");
  ready("ps:async,placement=1");
  EXPECT_EQ(cluster.last(1).tensors_ready().tensors(0).moved_from().id(), before.id());
}

// Expect: those that are left get second copies; a neighbour may then be lost, before the move it
// may not.
TEST_F(Moves, CopiesAreMadeAgainAfterALoss) {
  cluster.shard(kShardC, "shard-c");
  start("ps:async,replicas=2");
  cluster.drop(kShardB);
  EXPECT_EQ(asked(), "placement=1");
  EXPECT_THAT(members(changed(1)), ElementsAre(0, 2));
  EXPECT_TRUE(changed(kShardC).shards(1).lost());
  EXPECT_EQ(ready("ps:async,replicas=2,placement=1").placement(), 1u);
  cluster.drop(kShardC);
  EXPECT_EQ(cluster.last(1).shard_lost().shard(), 2u);
  EXPECT_EQ(status().state(), "running");
  cluster.shard(kShardD, "shard-b");  // one of the same name comes back
  cluster.advance(kBatch);
  EXPECT_THAT(members(changed(1)), ElementsAre(0, 3));
  ready("ps:async,replicas=2,placement=2");
  cluster.drop(kShardA);
  EXPECT_EQ(status().state(), "running");
}
TEST_F(Moves, ANeighbourThatIsLostBeforeTheMoveEndsTheJob) {
  cluster.shard(kShardC, "shard-c");
  start("ps:async,replicas=2");
  cluster.drop(kShardB);
  cluster.drop(kShardC);
  EXPECT_THAT(error_of(cluster.last(1)), HasSubstr("GB-P103"));
}

// Expect: a shard that goes before ranks have moved to it takes nothing with it; they move to what
// is left, whatever they were asked for.
TEST_F(Moves, AShardThatComesAndGoes) {
  start();
  cluster.shard(kShardC, "shard-c");
  cluster.drop(kShardC);
  cluster.advance(kBatch);
  EXPECT_EQ(asked(), "");
  cluster.shard(kShardD, "shard-d");
  cluster.advance(kBatch);
  EXPECT_EQ(asked(), "placement=1");
  cluster.drop(kShardD);
  EXPECT_EQ(status().state(), "running");
  EXPECT_THAT(members(changed(1)), ElementsAre(0, 1));
  const v1::ReadyTensor after = ready("ps:async,placement=1");
  EXPECT_EQ(after.placement(), 2u);
  EXPECT_EQ(after.moved_from().placement(), 0u);
}

// Expect: compressed tensors move by their partitions, and those that are stepped on as a whole
// move, too.
TEST_F(Moves, CompressedAndWholeTensorsMove) {
  start("ps:async,optimizer=lamb");
  const v1::ReadyTensor coded = ready("ps:async", "onebit", "c");
  cluster.shard(kShardC, "shard-c");
  cluster.advance(kBatch);
  EXPECT_EQ(asked(), "placement=1");
  EXPECT_EQ(ready("ps:async,optimizer=lamb,placement=1").moved_from().id(), before.id());
  const v1::ReadyTensor after = ready("ps:async,placement=1", "onebit", "c");
  EXPECT_EQ(after.placement(), 1u);
  EXPECT_EQ(after.moved_from().id(), coded.id());
  EXPECT_EQ(after.moved_from().chunk_elements(), coded.partition_elements());
  EXPECT_NE(coded.partition_elements(), coded.chunk_elements());
}

// Expect: one that comes while others wait to move lies where they will.
TEST_F(Moves, NewTensorsLieOnTheNewestShards) {
  start();
  cluster.shard(kShardC, "shard-c");
  cluster.advance(kBatch);
  EXPECT_EQ(ready("ps:async,optimizer=lamb", "", "x").placement(), 1u);
  EXPECT_EQ(ready("ps:sync", "onebit", "y").placement(), 1u);
  EXPECT_EQ(ready("ps:sync", "", "z").placement(), 1u);
}

// Expect: a job that is over is shown with the parts that it had at the end.
TEST_F(Moves, TheLastPartsAreShownAfterTheEnd) {
  start();
  cluster.shard(kShardC, "shard-c");
  cluster.advance(kBatch);
  ready("ps:async,placement=1");
  for (const uint32_t rank : {0, 1}) cluster.left(Cluster::agent_of(rank), job, rank, true);
  EXPECT_EQ(status().state(), "done");
  EXPECT_NEAR(status().shards(2).share(), 1.0 / 3, 1e-9);
}

// Expect: jobs that have nothing on shards, or are told to keep theirs, are not disturbed.
TEST_F(Moves, OthersAreNotAsked) {
  start("");
  cluster.shard(kShardC, "shard-c");
  cluster.advance(kBatch);
  EXPECT_EQ(asked(), "");
  EXPECT_EQ(status().shards_size(), 2);
}
TEST(KeepShards, JobsTakeNoNewOnes) {
  CoordinatorOptions options;
  options.keep_shards = true;
  Cluster cluster(options);
  cluster.shard(kShardA, "shard-a");
  const uint64_t job = cluster.start_job("train", 2);
  v1::TensorSpec spec = make_spec("w", 1 << 20);
  spec.set_mode("ps:async");
  cluster.make_ready(job, 2, spec);
  cluster.shard(kShardB, "shard-b");
  cluster.clear();
  cluster.advance(kBatch);
  EXPECT_THAT(cluster.inbox[1], IsEmpty());
}

}  // namespace
}  // namespace gradbus
