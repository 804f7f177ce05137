// Tests the engine without threads: the test calls engines on the loopback transport; clients are
// rings and local reductions only. Results are exact and completions come once. An invalid ring or
// a lost link ends only its own job.
#include <gtest/gtest.h>

#include <cstring>

#include "proto/algorithms.h"
#include "tests/unit/data_plane/engine_cluster.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::kJob;

void expect_sums(uint32_t agents, uint32_t ranks, uint64_t count, uint64_t chunk, ReduceOp op) {
  Cluster cluster(agents, ranks);
  cluster.add_tensor(0, count, chunk, op);
  const uint32_t world = agents * ranks;
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint32_t agent = 0; agent < agents; ++agent)
      for (uint32_t local = 0; local < ranks; ++local) {
        for (uint64_t i = 0; i < count; ++i)
          cluster.data(agent, local, 0)[i] =
              static_cast<float>((agent * ranks + local) * 4 + i % 9 + round);
        cluster.post(agent, local, 0, round);
      }
    const double divisor = op == ReduceOp::kAverage ? world : 1;
    for (uint32_t agent = 0; agent < agents; ++agent)
      for (uint32_t local = 0; local < ranks; ++local) {
        const auto done = cluster.completions(agent, local, 1);
        ASSERT_EQ(done.size(), 1u)
            << "agents " << agents << " ranks " << ranks << " round " << round;
        EXPECT_EQ(done[0].round, round);
        EXPECT_EQ(done[0].code, 0u);
        for (uint64_t i = 0; i < count; ++i) {
          const double sum =
              world * (world - 1) / 2.0 * 4 + world * static_cast<double>(i % 9 + round);
          ASSERT_FLOAT_EQ(cluster.data(agent, local, 0)[i], static_cast<float>(sum / divisor)) << i;
        }
      }
  }
  for (auto& node : cluster.nodes) EXPECT_TRUE(node->broken.take().empty());
}

TEST(Engine, SumsOverTwoAndThreeAgents) {
  for (const uint32_t agents : {2u, 3u, 4u})
    for (const uint32_t ranks : {1u, 2u, 3u}) {
      expect_sums(agents, ranks, 1001, 100, ReduceOp::kSum);
      expect_sums(agents, ranks, 1, 64, ReduceOp::kAverage);
      expect_sums(agents, ranks, 0, 1, ReduceOp::kSum);
    }
}

TEST(Engine, OppositeOrdersOfManyTensorsDoNotBlockEachOther) {
  constexpr uint32_t kTensors = 60;
  Cluster cluster(2, 1);
  for (uint32_t id = 0; id < kTensors; ++id) cluster.add_tensor(id, 70'000, 65'536);
  for (uint32_t id = 0; id < kTensors; ++id) {
    for (uint32_t agent = 0; agent < 2; ++agent) cluster.data(agent, 0, id)[69'999] = 1;
    cluster.post(0, 0, id, 1);
    cluster.post(1, 0, kTensors - 1 - id, 1);
    cluster.turn(1);
  }
  EXPECT_EQ(cluster.completions(0, 0, kTensors).size(), kTensors);
  EXPECT_EQ(cluster.completions(1, 0, kTensors).size(), kTensors);
  for (uint32_t id = 0; id < kTensors; ++id) EXPECT_EQ(cluster.data(1, 0, id)[69'999], 2);
}

// The nodes post in opposite orders, and one of them waits for its first result before it posts
// more.
TEST(Engine, AByteBudgetHoldsOnEveryNodeAndBlocksNothing) {
  constexpr uint32_t kTensors = 30;
  constexpr uint64_t kCount = 10'000, kBudget = 3 * kCount * sizeof(float) + 1;
  for (const Algorithm algorithm :
       {Algorithm::kRing, Algorithm::kTree, Algorithm::kRecursiveDoubling}) {
    Cluster cluster(3, 2);
    TensorSpec spec;
    spec.count = kCount;
    spec.budget_bytes = kBudget;
    for (uint32_t id = 0; id < kTensors; ++id) {
      spec.priority = id % 4;
      cluster.add_tensor(id, spec, algorithm == Algorithm::kRecursiveDoubling ? kCount : 1024,
                         algorithm);
    }
    for (uint64_t round = 1; round <= 3; ++round) {
      for (uint32_t place = 0; place < kTensors; ++place)
        for (uint32_t agent = 0; agent < 3; ++agent)
          for (uint32_t local = 0; local < 2; ++local) {
            const uint32_t id = agent == 1 ? kTensors - 1 - place : (place + local) % kTensors;
            cluster.data(agent, local, id)[kCount - 1] = static_cast<float>(round);
            cluster.post(agent, local, id, round);
          }
      for (uint32_t agent = 0; agent < 3; ++agent)
        for (uint32_t local = 0; local < 2; ++local)
          ASSERT_EQ(cluster.completions(agent, local, kTensors).size(), kTensors);
      for (uint32_t id = 0; id < kTensors; ++id)
        ASSERT_EQ(cluster.data(1, 0, id)[kCount - 1], static_cast<float>(6 * round));
    }
    for (const auto& node : cluster.nodes) {
      EXPECT_TRUE(node->broken.take().empty());
      EXPECT_LE(node->traffic->budget_bytes_max.value(), kBudget);
      EXPECT_GE(node->traffic->budget_bytes_max.value(), kCount * sizeof(float));
      EXPECT_EQ(node->traffic->budget_bytes.value(), 0u);
    }
    EXPECT_GT(cluster.nodes[0]->traffic->budget_delays.value(), 0u);
  }
}

TEST(Engine, ARoundWaitsForEveryRankAndATensorForEveryAgent) {
  Cluster cluster(2, 2);
  cluster.add_tensor(0, 10, 10);
  cluster.post(0, 0, 0, 1);
  cluster.post(0, 1, 0, 1);
  cluster.post(1, 0, 0, 1);
  cluster.turn(2000);
  CompletionRecord record;
  EXPECT_EQ(cluster.nodes[0]->clients[0].completions.pop(record), Pop::kEmpty);
  cluster.post(1, 1, 0, 1);
  EXPECT_EQ(cluster.completions(0, 0, 1).size(), 1u);
}

// The conductor posts AddTensor before it answers the client, but the engine may read the client
// first.
TEST(Engine, ASubmissionThatOvertakesItsTensorIsKept) {
  Cluster cluster(2, 1);
  cluster.turn(10);
  const Submission record{1, 0, 1, 0, 0, 0, 0, 0, 0};
  for (auto& node : cluster.nodes)
    ASSERT_EQ(node->clients[0].submissions.push(record), Push::kDone);
  for (auto& node : cluster.nodes) node->engine.do_work();
  cluster.add_tensor(0, 10, 10);
  EXPECT_EQ(cluster.completions(0, 0, 1).size(), 1u);
  for (auto& node : cluster.nodes) EXPECT_TRUE(node->broken.take().empty());
}

struct Nonsense {
  const char* field;
  Submission record;
};

TEST(Engine, EveryFieldOfASubmissionIsChecked) {
  const Nonsense cases[] = {
      {"kind", {9, 0, 1, 0, 0, 0, 0, 0, 0}},
      {"tensor", {1, 1, 1, 0, 0, 0, 0, 0, 0}},
      {"tensor", {1, UINT32_MAX, 1, 0, 0, 0, 0, 0, 0}},
      {"round", {1, 0, 0, 0, 0, 0, 0, 0, 0}},
      {"round", {1, 0, UINT64_MAX, 0, 0, 0, 0, 0, 0}},
      {"bytes", {1, 0, 1, UINT64_MAX, 0, 0, 0, 0, 0}},
  };
  for (const Nonsense& bad : cases) {
    Cluster cluster(2, 1);
    cluster.add_tensor(0, 10, 10);
    cluster.turn(10);
    ASSERT_EQ(cluster.nodes[0]->clients[0].submissions.push(bad.record), Push::kDone);
    cluster.turn(10);
    const auto broken = cluster.nodes[0]->broken.take();
    ASSERT_EQ(broken.size(), 1u) << bad.field;
    EXPECT_EQ(broken[0].job, kJob);
    EXPECT_NE(broken[0].status.message().find("GB-S210"), std::string::npos);
    EXPECT_NE(broken[0].status.message().find(bad.field), std::string::npos)
        << broken[0].status.message();
  }
}

// With a budget, the round waits for its turn when the tensor ends.
TEST(Engine, ARoundPostedWhileItsTensorRetiresBreaksThatJobOnly) {
  for (const uint64_t budget_bytes : {0, 4096}) {
    Cluster cluster(2, 1);
    TensorSpec spec;
    spec.count = 10;
    spec.budget_bytes = budget_bytes;
    cluster.add_tensor(0, spec, 10, Algorithm::kRing);
    cluster.turn(10);
    cluster.nodes[0]->engine.post(RemoveTensor{kJob, 0, nullptr});
    cluster.post(0, 0, 0, 1);
    cluster.turn(10);
    const auto broken = cluster.nodes[0]->broken.take();
    ASSERT_EQ(broken.size(), 1u);
    EXPECT_NE(broken[0].status.message().find("a round in flight"), std::string::npos)
        << broken[0].status.message();
  }
}

TEST(Engine, ASecondRoundBeforeTheFirstIsOverBreaksThatJobOnly) {
  Cluster cluster(2, 1);
  cluster.add_tensor(0, 10, 10);
  cluster.turn(10);
  for (const uint64_t round : {1, 2})
    ASSERT_EQ(cluster.nodes[0]->clients[0].submissions.push({1, 0, round, 0, 0, 0, 0, 0, 0}),
              Push::kDone);
  cluster.turn(10);
  const auto broken = cluster.nodes[0]->broken.take();
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_NE(broken[0].status.message().find("field round"), std::string::npos);
}

TEST(Engine, AHostileRingTailBreaksThatJob) {
  Cluster cluster(2, 1);
  cluster.turn(5);
  std::byte* base = cluster.nodes[0]->clients[0].channel->segment->at(kSubmissionRingOffset);
  reinterpret_cast<RingControl*>(base)->tail.count.store(UINT64_MAX);
  cluster.turn(5);
  const auto broken = cluster.nodes[0]->broken.take();
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_NE(broken[0].status.message().find("field tail"), std::string::npos);
}

TEST(Engine, ALostPeerBreaksTheJobAndNamesTheAgent) {
  Cluster cluster(2, 1);
  cluster.add_tensor(0, 10, 10);
  cluster.turn(50);
  cluster.nodes.pop_back();
  std::vector<JobBroken> broken;
  for (const Nanos deadline = monotonic_now() + 30 * kSecond;
       broken.empty() && monotonic_now() < deadline; cluster.turn(1))
    broken = cluster.nodes[0]->broken.take();
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_EQ(broken[0].status.code(), Code::kPeerLost);
  EXPECT_NE(broken[0].status.message().find("agent 1"), std::string::npos)
      << broken[0].status.message();
}

TEST(Engine, AnEndedJobIsForgotten) {
  Cluster cluster(2, 1);
  cluster.turn(20);
  for (auto& node : cluster.nodes) node->engine.post(EndJob{kJob});
  cluster.turn(200);
  AddTensor late;
  late.job = kJob;
  cluster.nodes[0]->engine.post(std::move(late));
  cluster.turn(5);
  EXPECT_TRUE(cluster.nodes[0]->broken.take().empty());
}

}  // namespace
}  // namespace gradbus
