// What a tensor's round asks its operations to do, and what it adds for shards.
#include <gtest/gtest.h>

#include <bit>

#include "worker_agent/job/arena.h"
#include "worker_agent/rounds/dense_round.h"
#include "worker_agent/rounds/node_round.h"
#include "worker_agent/rounds/ps_round.h"

namespace gradbus {
namespace {

using Kind = OperationEvent::Kind;

PsPlan ps_plan(const ShardSet& shards) {
  PsPlan plan;
  plan.shards = shards;
  return plan;
}

// Two agents with a rank each, and three shards.
class RoundsTest : public testing::Test {
 protected:
  void SetUp() override {
    job_.agents = 2;
    job_.shards = 3;
    job_.agent_of_rank = {0, 1};
    job_.local_ranks = {0};
    job_.staleness = std::make_shared<StalenessBoard>();
    ASSERT_TRUE(arena_.open().ok());
    add_.plan.id = 7;
    add_.plan.spec.name = "t";
    add_.plan.spec.count = 100;
    add_.plan.chunk_elements = 50;
    add_.plan.exchange = ps_plan({3});
    add_.shape = make_local_reduction_shape(add_.plan.spec, 50, {2, 1, true});
    add_.slot = arena_.place(add_.shape).take();
    add_.shape.data_stride = add_.slot.data_stride;
    add_.segment = arena_.segments()[add_.slot.segment];
  }

  std::unique_ptr<PsRound> ps_round() {
    return std::make_unique<PsRound>(job_, add_,
                                     std::make_unique<DenseRound>(job_, add_, RegionId{}));
  }
  RoundInput input(uint64_t number) { return {number, request_, {}}; }
  uint32_t source_of_push(const PsRound& round) {
    FrameHeader header;
    round.complete(header, *round.operations().front());
    return header.source;
  }

  ShmQuota quota_{16 << 20, 0};
  Arena arena_{"job", 1, 2, quota_};
  StartJob job_;
  AddTensor add_;
  RoundRequest request_;
  OperationQueue queue_;
};

TEST_F(RoundsTest, EventsComeBackInOrder) {
  queue_.add({.round = 1});
  queue_.add({.round = 2});
  EXPECT_EQ(queue_.take().round, 1u);
  queue_.add({.round = 3});
  EXPECT_EQ(queue_.take().round, 2u);
  EXPECT_FALSE(queue_.empty());
  EXPECT_EQ(queue_.take().round, 3u);
  EXPECT_TRUE(queue_.empty());
}

TEST_F(RoundsTest, DenseRoundsHaveOneOperation) {
  add_.plan.exchange = DensePlan{Algorithm::kRing};
  DenseRound round(job_, add_, RegionId{});
  EXPECT_TRUE(round.done());
  ASSERT_TRUE(round.begin(input(4), queue_).ok());
  EXPECT_FALSE(round.done());
  ASSERT_TRUE(round.chunk_summed(1, queue_).ok());
  const OperationEvent begins = queue_.take();
  EXPECT_EQ(begins.kind, Kind::kBegin);
  EXPECT_EQ(begins.operation, round.operations().front().get());
  EXPECT_EQ(begins.round, 4u);
  const OperationEvent chunk = queue_.take();
  EXPECT_EQ(chunk.kind, Kind::kChunk);
  EXPECT_EQ(chunk.chunk, 1u);
  EXPECT_TRUE(queue_.empty());
  ASSERT_TRUE(round.ended(*round.operations().front(), queue_).ok());
  EXPECT_TRUE(round.done());
  EXPECT_EQ(round.staleness(), 0u);
  EXPECT_FALSE(round.needs(2));
}

TEST_F(RoundsTest, RoundsOnOneNodeAreOverAtOnce) {
  NodeRound round;
  ASSERT_TRUE(round.begin(input(1), queue_).ok());
  EXPECT_TRUE(round.done());
  EXPECT_TRUE(queue_.empty());
  EXPECT_TRUE(round.operations().empty());
}

TEST_F(RoundsTest, PushesHaveTheLearningRateOrThePull) {
  request_.learning_rate = 0.25F;
  const auto round = ps_round();
  ASSERT_TRUE(round->begin(input(1), queue_).ok());
  EXPECT_EQ(source_of_push(*round), std::bit_cast<uint32_t>(0.25F));
  request_.pull_only = true;
  request_.pull_source = kReadOptimizerState + 1;
  ASSERT_TRUE(round->begin(input(2), queue_).ok());
  EXPECT_EQ(source_of_push(*round), kReadOptimizerState + 1);
}

TEST_F(RoundsTest, AnswersOfShardsSayHowStaleTheRoundWas) {
  add_.plan.mode = parse_mode("ps:async").take();
  {
    const auto round = ps_round();
    const CollectiveOperation& operation = *round->operations().front();
    ASSERT_TRUE(round->begin(input(1), queue_).ok());
    for (const uint32_t steps : {1U, 3U, 2U}) {
      FrameHeader header;
      header.source = steps;
      round->received(header, operation);
    }
    EXPECT_EQ(round->staleness(), 3u);
    round->finished();
    request_.pull_only = true;  // it makes no step
    ASSERT_TRUE(round->begin(input(2), queue_).ok());
    EXPECT_EQ(round->staleness(), 0u);
    round->finished();
    const auto taken = job_.staleness->take();
    ASSERT_TRUE(taken.contains(7));
    EXPECT_EQ(taken.at(7).rounds, 1u);
    EXPECT_EQ(taken.at(7).most, 3u);
  }
}

TEST_F(RoundsTest, OneCopyNeedsItsShards) {
  EXPECT_FALSE(ps_round()->needs(1));  // an agent
  EXPECT_TRUE(ps_round()->needs(2));
  EXPECT_TRUE(ps_round()->needs(4));
  EXPECT_FALSE(ps_round()->needs(5));
  const std::vector<uint16_t> members{0, 2};
  add_.plan.exchange =
      ps_plan({2, nullptr, std::make_shared<const std::vector<uint16_t>>(members)});
  EXPECT_TRUE(ps_round()->needs(2));
  EXPECT_FALSE(ps_round()->needs(3));
  EXPECT_TRUE(ps_round()->needs(4));
  const auto old = ps_round();
  old->replaced();
  EXPECT_FALSE(old->needs(2));
  std::get<PsPlan>(add_.plan.exchange).replicas = 2;
  EXPECT_FALSE(ps_round()->needs(2));
}

}  // namespace
}  // namespace gradbus
