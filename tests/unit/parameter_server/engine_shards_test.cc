// Tests tensors that shards aggregate, on real engines, local reductions and links. The transport
// is reliable, or it delays, reorders and refuses. Values are small integers in f32, so all sums
// are exact in any order. The expected parameters follow from SGD with rates that are powers of
// two.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "proto/placement.h"
#include "tests/unit/data_plane/engine_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::kJob;
using test::Layout;
using test::loopback_by;
using test::ManualClock;
using testing::Each;
using testing::HasSubstr;

constexpr uint64_t kChunk = 64;

std::unique_ptr<Transport> unreliable() {
  static uint64_t seed = 0;
  return make_faulty(test::loopback(),
                     {.seed = ++seed, .busy = 0.3, .delay = 0.3, .reorder = true});
}

TensorSpec spec_of(uint64_t count, ReduceOp op = ReduceOp::kSum) {
  TensorSpec spec;
  spec.name = "t";
  spec.count = count;
  spec.op = op;
  return spec;
}

float gradient(uint32_t rank, uint64_t i, uint64_t round) {
  return static_cast<float>(rank * 16 + i % 13 + round);
}

void start_round(Cluster& cluster, uint32_t agent, uint64_t count, uint64_t round) {
  const auto& ranks = cluster.nodes[agent]->ranks;
  for (uint32_t local = 0; local < ranks.size(); ++local) {
    for (uint64_t i = 0; i < count; ++i)
      cluster.data(agent, local, 0)[i] = gradient(ranks[local], i, round);
    cluster.post(agent, local, 0, round);
  }
}

struct SyncCase {
  uint32_t agents;
  uint32_t ranks;
  uint32_t shards;
  uint64_t count;
  bool faults;
};

void PrintTo(const SyncCase& c, std::ostream* out) {
  *out << c.agents << " agents " << c.ranks << " ranks " << c.shards << " shards " << c.count
       << " elements";
}

class SummedByShards : public testing::TestWithParam<SyncCase> {};

// Expect: every rank gets the mean of all ranks' gradients in every round.
TEST_P(SummedByShards, TheMeanIsExact) {
  const SyncCase c = GetParam();
  Layout layout{.agents = c.agents, .ranks_per_agent = c.ranks, .shards = c.shards};
  if (c.faults) layout.transport = unreliable;
  Cluster cluster(layout);
  TensorSpec spec = spec_of(c.count, ReduceOp::kAverage);
  spec.postscale = 4;
  cluster.add_on_shards(0, spec, kChunk, "ps:sync");
  for (uint64_t round = 1; round <= 4; ++round) {
    for (uint32_t agent = 0; agent < c.agents; ++agent) start_round(cluster, agent, c.count, round);
    for (uint32_t agent = 0; agent < c.agents; ++agent) {
      for (uint32_t local = 0; local < c.ranks; ++local) {
        ASSERT_EQ(cluster.completions(agent, local, 1).size(), 1u) << "round " << round;
        for (uint64_t i = 0; i < c.count; ++i) {
          float sum = 0;
          for (uint32_t rank = 0; rank < layout.world(); ++rank) sum += gradient(rank, i, round);
          const float factor = 4.0F / static_cast<float>(layout.world());
          ASSERT_FLOAT_EQ(cluster.data(agent, local, 0)[i], sum * factor) << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Shapes, SummedByShards,
    testing::Values(SyncCase{1, 1, 1, 1, false}, SyncCase{1, 2, 2, 1000, false},
                    SyncCase{2, 1, 1, 0, false}, SyncCase{3, 2, 2, 64, false},
                    SyncCase{3, 1, 4, 65, false}, SyncCase{4, 1, 3, 10'000, false},
                    SyncCase{2, 2, 2, 8'191, true}, SyncCase{5, 1, 3, 3'000, true}));

// Expect: integers, 16-bit floats and other operations are reduced as on the agents.
TEST(SummedByShards, AnyDtypeAndOperation) {
  Cluster cluster({.agents = 3, .shards = 2});
  TensorSpec spec = spec_of(100, ReduceOp::kMax);
  spec.dtype = DType::kI64;
  cluster.add_on_shards(0, spec, kChunk, "ps:sync");
  for (uint32_t agent = 0; agent < 3; ++agent) {
    auto* data = reinterpret_cast<int64_t*>(cluster.data(agent, 0, 0));
    for (int64_t i = 0; i < 100; ++i) data[i] = (agent + 1) * (i - 50);
    cluster.post(agent, 0, 0, 1);
  }
  for (uint32_t agent = 0; agent < 3; ++agent) {
    ASSERT_EQ(cluster.completions(agent, 0, 1).size(), 1u);
    const auto* data = reinterpret_cast<int64_t*>(cluster.data(agent, 0, 0));
    for (int64_t i = 0; i < 100; ++i) ASSERT_EQ(data[i], i < 50 ? i - 50 : 3 * (i - 50));
  }
}

// Expect: a push that arrives before the shard knows the tensor waits for it.
TEST(SummedByShards, APushMayComeBeforeTheTensor) {
  Cluster cluster({.agents = 2, .shards = 1});
  const TensorSpec spec = spec_of(1000);
  for (uint32_t agent = 0; agent < 2; ++agent)
    cluster.add_tensor(*cluster.nodes[agent], 0, spec, kChunk, Algorithm::kShards);
  for (uint32_t agent = 0; agent < 2; ++agent) start_round(cluster, agent, 1000, 1);
  cluster.turn(200);
  cluster.add_to_shard(0, 0, spec, kChunk, "ps:sync");
  ASSERT_EQ(cluster.completions(0, 0, 1).size(), 1u);
  ASSERT_EQ(cluster.completions(1, 0, 1).size(), 1u);
  EXPECT_EQ(cluster.data(1, 0, 0)[999], gradient(0, 999, 1) + gradient(1, 999, 1));
}

// ---- shards that hold the parameters

class AsyncPs : public testing::Test {
 protected:
  static constexpr uint64_t kCount = 200;

  void open(const Layout& layout, const std::string& mode) {
    cluster_ = std::make_unique<Cluster>(layout);
    cluster_->add_on_shards(0, spec_of(kCount, ReduceOp::kAverage), kChunk, mode);
    rounds_.resize(layout.agents);
  }

  // The values of agent 0 become the parameters of all.
  void set_parameters() {
    for (uint32_t agent = 0; agent < rounds_.size(); ++agent)
      push(agent, agent == 0 ? 100.0F : -7.0F);
    for (uint32_t agent = 0; agent < rounds_.size(); ++agent)
      ASSERT_THAT(result(agent), Each(100.0F));
  }

  void push(uint32_t agent, float value) { post(agent, value, false); }
  void pull(uint32_t agent) { post(agent, 1000, true); }
  void post(uint32_t agent, float value, bool ps_request) {
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    record.ps_request = ps_request ? 1 : 0;
    for (uint32_t local = 0; local < cluster_->layout().ranks_per_agent; ++local) {
      std::fill_n(cluster_->data(agent, local, 0), kCount, value);
      cluster_->post(agent, local, 0, rounds_[agent] + 1, record);
    }
    ++rounds_[agent];
  }

  // A round for a part of the shards' state. The first rank brings the value, the others minus
  // zeros.
  void keep(uint32_t agent, PsRequest kind, uint32_t part, float value) {
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    record.ps_request = static_cast<uint64_t>(kind);
    record.optimizer_state_part = part;
    for (uint32_t local = 0; local < cluster_->layout().ranks_per_agent; ++local) {
      std::fill_n(cluster_->data(agent, local, 0), kCount, local == 0 ? value : -0.0F);
      cluster_->post(agent, local, 0, rounds_[agent] + 1, record);
    }
    ++rounds_[agent];
  }

  std::vector<float> result(uint32_t agent) {
    EXPECT_EQ(cluster_->completions(agent, 0, 1).size(), 1u);
    for (uint32_t local = 1; local < cluster_->layout().ranks_per_agent; ++local)
      EXPECT_EQ(cluster_->completions(agent, local, 1).size(), 1u);
    const float* data = cluster_->data(agent, 0, 0);
    return {data, data + kCount};
  }

  bool answered(uint32_t agent) {
    cluster_->turn(300);
    CompletionRecord record;
    return cluster_->nodes[agent]->clients[0].completions.pop(record) == Pop::kRecord;
  }

  std::function<std::unique_ptr<Transport>()> by_clock() {
    return [this] { return loopback_by(clock_); };
  }

  ManualClock clock_;
  std::unique_ptr<Cluster> cluster_;
  std::vector<uint64_t> rounds_;  // by agent
};

// Expect: each push is a step at once, independent of other agents. The agent gets the newest
// parameters.
TEST_F(AsyncPs, AsyncStepsOnEveryPush) {
  open({.agents = 3, .shards = 2}, "ps:async,lr=0.5");
  set_parameters();
  for (int step = 1; step <= 5; ++step) {
    push(1, 2);
    EXPECT_THAT(result(1), Each(100.0F - static_cast<float>(step)));
  }
  push(0, -4);
  EXPECT_THAT(result(0), Each(97.0F));
  push(2, 0);
  EXPECT_THAT(result(2), Each(97.0F));
}

// Expect: a node of two ranks makes one step with their mean.
TEST_F(AsyncPs, ANodePushesTheMeanOfItsRanks) {
  open({.agents = 2, .ranks_per_agent = 2, .shards = 1}, "ps:async,lr=1");
  set_parameters();
  push(1, 6);
  EXPECT_THAT(result(1), Each(94.0F));
}

// Expect: an agent is answered while it has made at most max_staleness pushes more than the slowest
// agent.
TEST_F(AsyncPs, SspWaitsForTheSlowest) {
  open({.agents = 2, .shards = 2}, "ps:ssp,max_staleness=2,lr=1");
  set_parameters();
  push(0, 1);
  EXPECT_THAT(result(0), Each(99.0F));
  push(0, 1);
  EXPECT_THAT(result(0), Each(98.0F));
  push(0, 1);
  EXPECT_FALSE(answered(0));
  push(1, 10);
  EXPECT_THAT(result(0), Each(87.0F)) << "its third step was made at once, the answer came later";
  EXPECT_THAT(result(1), Each(87.0F));
}

// Expect: an agent's staleness board counts the steps of others between its parameters and its own
// step. A pull is not counted.
TEST_F(AsyncPs, StalenessIsNoted) {
  open({.agents = 2, .shards = 2}, "ps:async,lr=1");
  set_parameters();
  const auto noted = [&](uint32_t agent) { return cluster_->nodes[agent]->staleness->take(); };
  noted(0);
  noted(1);
  for (int i = 0; i < 2; ++i) {
    push(0, 1);
    EXPECT_TRUE(answered(0));
  }
  push(1, 1);
  EXPECT_TRUE(answered(1));
  push(1, 1);
  EXPECT_TRUE(answered(1));
  const auto first = noted(0);
  ASSERT_EQ(first.size(), 1u);
  EXPECT_EQ(first.begin()->second.rounds, 2u);
  EXPECT_EQ(first.begin()->second.steps, 0u);
  const Staleness second = noted(1).begin()->second;
  EXPECT_EQ(second.rounds, 2u);
  EXPECT_EQ(second.steps, 2u);
  EXPECT_EQ(second.most, 2u);
  pull(0);
  EXPECT_TRUE(answered(0));
  EXPECT_TRUE(noted(0).empty());
}

// Expect: the q-th gradient closes a step with the mean of q. A late gradient counts in the next
// step.
TEST_F(AsyncPs, QuorumClosesWithTheFirst) {
  open({.agents = 3, .shards = 2}, "ps:quorum,q=2,lr=1");
  set_parameters();
  push(0, 2);
  EXPECT_FALSE(answered(0));
  push(1, 4);
  EXPECT_THAT(result(0), Each(97.0F));
  EXPECT_THAT(result(1), Each(97.0F));
  push(2, 8);  // late for the first step, the first of the second
  EXPECT_FALSE(answered(2));
  push(1, 2);
  EXPECT_THAT(result(2), Each(92.0F));
  EXPECT_THAT(result(1), Each(92.0F));
}

// Expect: no agent waits for an agent that has pulled: its pull closes this step and the next ones.
TEST_F(AsyncPs, AnAgentThatPullsIsNotWaitedFor) {
  open({.agents = 2, .shards = 1}, "ps:quorum,q=2,lr=1");
  set_parameters();
  push(0, 2);
  EXPECT_FALSE(answered(0));
  pull(1);
  EXPECT_THAT(result(0), Each(98.0F));
  EXPECT_THAT(result(1), Each(98.0F));
  push(0, 2);
  EXPECT_THAT(result(0), Each(96.0F));
}

// Expect: when all agents have pulled, all continue, whether they pull once more, as flush() does,
// or not.
TEST_F(AsyncPs, AQuorumIsOfAllAgainAfterAFence) {
  for (const bool twice : {true, false}) {
    rounds_.clear();
    open({.agents = 3, .shards = 2}, "ps:quorum,q=2,lr=1");
    set_parameters();
    for (int times = 0; times < 3; ++times) {
      for (const uint32_t agent : {1, 2, 0}) pull(agent);
      for (const uint32_t agent : {0, 1, 2}) EXPECT_THAT(result(agent), Each(100.0F));
    }
    if (twice) {
      pull(0);
      EXPECT_THAT(result(0), Each(100.0F));
    }
    push(0, 2);
    EXPECT_FALSE(answered(0)) << "it would have made a step alone";
    if (twice) {
      pull(1);  // late for the same fence
      EXPECT_THAT(result(1), Each(100.0F));
      EXPECT_FALSE(answered(0));
    }
    push(2, 4);
    EXPECT_THAT(result(0), Each(97.0F));
    EXPECT_THAT(result(2), Each(97.0F));
  }
}

// Expect: after a fence no agent waits for one that only pulls, or for one that has ended, after
// the deadline.
TEST_F(AsyncPs, AfterAFenceWhoeverStaysAwayIsNotWaitedFor) {
  open({.agents = 2, .shards = 1, .transport = by_clock()}, "ps:quorum,q=2,deadline_ms=60000,lr=1");
  set_parameters();
  for (int times = 0; times < 2; ++times) {
    for (const uint32_t agent : {0, 1}) pull(agent);
    for (const uint32_t agent : {0, 1}) EXPECT_THAT(result(agent), Each(100.0F));
  }
  push(0, 5);
  EXPECT_FALSE(answered(0)) << "no time has passed";
  clock_.advance(60 * kSecond);
  EXPECT_THAT(result(0), Each(95.0F));

  rounds_.clear();
  open({.agents = 2, .shards = 1}, "ps:quorum,q=2,lr=1");
  set_parameters();
  for (int times = 0; times < 2; ++times) {
    for (const uint32_t agent : {0, 1}) pull(agent);
    for (const uint32_t agent : {0, 1}) EXPECT_THAT(result(agent), Each(100.0F));
  }
  push(0, 5);
  EXPECT_FALSE(answered(0));
  pull(1);
  EXPECT_THAT(result(0), Each(95.0F));
  EXPECT_THAT(result(1), Each(95.0F));
  push(0, 5);
  EXPECT_THAT(result(0), Each(90.0F)) << "alone";
  push(1, 5);
  EXPECT_FALSE(answered(1)) << "it is back";
  push(0, 5);
  EXPECT_THAT(result(0), Each(85.0F));
  EXPECT_THAT(result(1), Each(85.0F));
}

// Expect: a pull makes no step, whatever its data is, and returns the newest parameters.
TEST_F(AsyncPs, APullMakesNoStep) {
  open({.agents = 2, .shards = 2}, "ps:ssp,max_staleness=1,lr=1,momentum=0.5");
  set_parameters();
  push(0, 4);
  EXPECT_THAT(result(0), Each(96.0F));
  pull(1);
  EXPECT_THAT(result(1), Each(96.0F));
  for (const float expected : {94.0F, 93.0F, 92.5F}) {  // it is idle, so no agent waits for it
    push(0, 0);
    EXPECT_THAT(result(0), Each(expected));
  }
}

// Expect: a gradient that is not finite makes no step and delays no agent. The next one makes a
// step.
TEST_F(AsyncPs, WhatIsNotFiniteMakesNoStep) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  open({.agents = 2, .shards = 2}, "ps:async,lr=1,momentum=0.5");
  set_parameters();
  for (const float value : {kNan, -std::numeric_limits<float>::infinity()}) {
    push(1, value);
    EXPECT_THAT(result(1), Each(100.0F));
  }
  push(0, 2);
  EXPECT_THAT(result(0), Each(98.0F));

  rounds_.clear();
  open({.agents = 2, .shards = 1}, "ps:quorum,q=2,lr=1");
  set_parameters();
  push(0, 2);
  EXPECT_FALSE(answered(0));
  push(1, kNan);
  EXPECT_THAT(result(1), Each(100.0F));
  push(1, 4);
  EXPECT_THAT(result(0), Each(97.0F));
  EXPECT_THAT(result(1), Each(97.0F));
}

// Expect: the deadline closes a step with the gradients that have arrived.
TEST_F(AsyncPs, QuorumHasADeadline) {
  open({.agents = 2, .shards = 1, .transport = by_clock()}, "ps:quorum,q=2,deadline_ms=60000,lr=1");
  set_parameters();
  push(1, 5);
  EXPECT_FALSE(answered(1)) << "no time has passed";
  clock_.advance(60 * kSecond - 1);
  EXPECT_FALSE(answered(1));
  clock_.advance(1);
  EXPECT_THAT(result(1), Each(95.0F));
}

// Expect: with momentum, the shard's steps are those of torch: v = 0.5 v + g.
TEST_F(AsyncPs, MomentumIsTheShards) {
  open({.agents = 2, .shards = 2}, "ps:async,lr=1,momentum=0.5");
  set_parameters();
  push(0, 4);
  EXPECT_THAT(result(0), Each(96.0F));  // v = 4
  push(1, 2);
  EXPECT_THAT(result(1), Each(92.0F));  // v = 4
  push(0, 0);
  EXPECT_THAT(result(0), Each(90.0F));  // v = 2
}

// Expect: the parts of the shards' state follow torch's formula: v = 0.5 v + g.
TEST_F(AsyncPs, WhatShardsKeepCanBeRead) {
  open({.agents = 2, .ranks_per_agent = 2, .shards = 2}, "ps:async,lr=1,momentum=0.5");
  set_parameters();
  push(0, 4);
  result(0);
  push(1, 2);
  EXPECT_THAT(result(1), Each(92.0F));
  for (const uint32_t agent : {0, 1}) {
    const auto read = [&](uint32_t part) {
      keep(agent, PsRequest::kRead, part, 1000);
      return result(agent);
    };
    EXPECT_THAT(read(1), Each(4.0F)) << "0.5 * 4 + 2";
    EXPECT_THAT(read(2), Each(2.0F)) << "steps";
    EXPECT_THAT(read(0), Each(92.0F));
  }
  pull(0);
  EXPECT_THAT(result(0), Each(92.0F));
}

// Expect: the values of agent 0's ranks are stored, the values of others are not. Steps continue
// from them.
TEST_F(AsyncPs, WhatShardsKeepCanBeWritten) {
  open({.agents = 3, .ranks_per_agent = 3, .shards = 2, .transport = unreliable},
       "ps:async,lr=1,momentum=0.5");
  set_parameters();
  push(1, 32);
  EXPECT_THAT(result(1), Each(68.0F));
  const std::vector<float> parts = {50, 8, 3};  // parameters, v, steps
  for (uint32_t part = 0; part < parts.size(); ++part) {
    for (const uint32_t agent : {0, 1, 2})
      keep(agent, PsRequest::kWrite, part, agent == 0 ? parts[part] : -7);
    for (const uint32_t agent : {0, 1, 2}) result(agent);
  }
  for (uint32_t part = 0; part < parts.size(); ++part) {
    keep(2, PsRequest::kRead, part, 1000);
    EXPECT_THAT(result(2), Each(parts[part])) << part;
  }
  push(1, 2);
  EXPECT_THAT(result(1), Each(44.0F)) << "v = 0.5 * 8 + 2";
  keep(0, PsRequest::kRead, 2, 0);
  EXPECT_THAT(result(0), Each(4.0F));
}

struct KeptCase {
  const char* mode;
  uint32_t shards;
};
void PrintTo(const KeptCase& kept, std::ostream* out) {
  *out << kept.mode << " " << kept.shards << " shards";
}

class KeptBy : public AsyncPs, public testing::WithParamInterface<KeptCase> {
 protected:
  // One push of each agent, with equal values in every job.
  void push_all(uint32_t number) {
    for (uint32_t agent = 0; agent < rounds_.size(); ++agent) {
      push(agent, std::ldexp(1.37F + static_cast<float>(number + agent), -3));
      result(agent);
    }
  }
  std::vector<float> read(uint32_t part) {
    keep(1, PsRequest::kRead, part, 9);
    return result(1);
  }
};

// Expect: a job that starts with the state of another one makes the same steps, to the last bit,
// even with other shards.
TEST_P(KeptBy, AnotherJobGoesOn) {
  const auto& [mode, shards] = GetParam();
  open({.agents = 2, .ranks_per_agent = 2, .shards = 2}, mode);
  set_parameters();
  for (uint32_t number = 0; number < 5; ++number) push_all(number);
  std::vector<std::vector<float>> kept;
  const uint32_t parts = parse_mode(mode).value().optimizer_state_parts();
  for (uint32_t part = 0; part < parts; ++part) kept.push_back(read(part));
  for (uint32_t number = 5; number < 9; ++number) push_all(number);
  const std::vector<float> wanted = read(0);

  rounds_.clear();
  open({.agents = 2, .ranks_per_agent = 2, .shards = shards}, mode);
  set_parameters();
  for (uint32_t part = 0; part < parts; ++part) {
    for (const uint32_t agent : {1, 0}) {
      keep(agent, PsRequest::kWrite, part, -0.0F);
      if (agent == 0) std::ranges::copy(kept[part], cluster_->data(0, 0, 0));
    }
    result(0);
    result(1);
  }
  for (uint32_t number = 5; number < 9; ++number) push_all(number);
  EXPECT_EQ(read(0), wanted);
  EXPECT_THAT(read(parts - 1), Each(18.0F));
}

INSTANTIATE_TEST_SUITE_P(
    Optimizers, KeptBy,
    testing::Values(KeptCase{"ps:async,optimizer=adam", 2},
                    KeptCase{"ps:async,optimizer=adamw,weight_decay=0.1,replicas=2", 3},
                    KeptCase{"ps:ssp,momentum=0.9,nesterov=1", 1},
                    KeptCase{"ps:quorum,optimizer=adagrad,replicas=2", 2},
                    KeptCase{"ps:async,optimizer=lamb", 2}));

// Expect: on a bad transport, nothing is lost or applied twice. The parameters change by the sum of
// all pushes.
TEST_F(AsyncPs, EveryPushCountsOnceOverABadTransport) {
  open({.agents = 3, .shards = 2, .transport = unreliable}, "ps:async,lr=1");
  set_parameters();
  for (int step = 0; step < 20; ++step) {
    for (uint32_t agent = 0; agent < 3; ++agent) push(agent, static_cast<float>(agent));
    for (uint32_t agent = 0; agent < 3; ++agent) result(agent);
  }
  push(0, 0);
  EXPECT_THAT(result(0), Each(100.0F - 20 * 3));
}

// ---- frames that a shard refuses

class BadPush : public testing::Test {
 protected:
  BadPush() {
    plan_.collective.count = 100;
    plan_.collective.chunk_elements = kChunk;
    plan_.collective.agents = 2;
    plan_.collective.shards = 2;
    plan_.collective.tensor = 0;
    plan_.name = "t";
    plan_.mode = parse_mode("ps:sync").take();
    tensor_ = make_shard_tensor(plan_, *transport_).take();
    header_.kind = static_cast<uint8_t>(FrameKind::kReduce);
    header_.dtype = static_cast<uint8_t>(DType::kF32);
    header_.op = static_cast<uint8_t>(ReduceOp::kSum);
    header_.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
    header_.step = 1;
    header_.chunk = 0;
    header_.length = kChunk * sizeof(float);
    header_.total = 100;
  }

  Status push(uint32_t agent) {
    const std::vector<std::byte> payload(header_.length);
    return tensor_->on_push(agent, header_, payload, 0, answers_);
  }
  void refused(const std::string& what, uint32_t agent = 0) {
    const Status status = push(agent);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_TRUE(answers_.empty());
  }

  std::unique_ptr<Transport> transport_ = test::loopback();
  ShardPlan plan_;
  std::unique_ptr<ShardTensor> tensor_;
  FrameHeader header_;
  std::vector<ShardAnswer> answers_;
};

TEST_F(BadPush, IsRefusedByItsField) {
  const FrameHeader good = header_;
  const auto with = [&](auto change) {
    header_ = good;
    change(header_);
  };
  with([](FrameHeader& h) { h.kind = static_cast<uint8_t>(FrameKind::kGather); });
  refused("kind is 4, expected 3");
  with([](FrameHeader& h) { h.dtype = static_cast<uint8_t>(DType::kF64); });
  refused("dtype is 2, expected 1");
  with([](FrameHeader& h) { h.total = 99; });
  refused("total is 99, expected 100");
  with([](FrameHeader& h) { h.length = 4; });
  refused("length is 4, expected 256");
  with([](FrameHeader& h) { h.step = 2; });
  refused("step is 2, expected 1");
  with([](FrameHeader& h) { h.chunk = 1; });
  refused("a chunk that another shard holds");
  with([](FrameHeader& h) { h.chunk = UINT32_MAX; });
  refused("a chunk that another shard holds");
  with([](FrameHeader& h) { h.operation = 1; });
  refused("operation is 1, expected 0");
  with([](FrameHeader& h) { h.source = kReadOptimizerState; });
  refused("a part that is not kept");
  with([](FrameHeader& h) { h.source = kWriteOptimizerState + 3; });
  refused("a part that is not kept");
  header_ = good;
  refused("a push of another shard", 2);
  EXPECT_TRUE(push(0).ok());
}

// Expect: a repeated push changes nothing, whether it has the old round or the next one.
TEST_F(BadPush, IsNotTakenTwice) {
  ASSERT_TRUE(push(0).ok());
  refused("step is 1, expected 2");
  header_.step = 2;
  refused("a push before the last one was answered");
}

// Expect: with a pattern, every chunk is on the shard that the pattern names, once. A shard that is
// not in it has no chunks. Sums and steps are those of equal parts.
TEST(ArenaSlot, APatternChangesNoResult) {
  Layout layout{.agents = 3, .ranks_per_agent = 2, .shards = 4, .transport = unreliable};
  layout.pattern = std::make_shared<const std::vector<uint16_t>>(std::vector<uint16_t>{3, 0, 3, 1});
  Cluster cluster(layout);
  constexpr uint64_t kElements = 40 * kChunk + 3;
  cluster.add_on_shards(0, spec_of(kElements, ReduceOp::kSum), kChunk, "ps:sync");
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint32_t agent = 0; agent < 3; ++agent) start_round(cluster, agent, kElements, round);
    for (uint32_t agent = 0; agent < 3; ++agent) {
      ASSERT_EQ(cluster.completions(agent, 0, 1).size(), 1u) << "round " << round;
      for (uint64_t i = 0; i < kElements; ++i) {
        float sum = 0;
        for (uint32_t rank = 0; rank < 6; ++rank) sum += gradient(rank, i, round);
        ASSERT_EQ(cluster.data(agent, 0, 0)[i], sum) << i;
      }
    }
  }
  const uint64_t pushed = kChunk * sizeof(float) * 3 * 3;  // agents, rounds
  EXPECT_EQ(cluster.received_by_shard(0), 10 * pushed);
  EXPECT_EQ(cluster.received_by_shard(1), 10 * pushed);
  EXPECT_EQ(cluster.received_by_shard(2), 0u);
  EXPECT_EQ(cluster.received_by_shard(3), 20 * pushed + 3 * sizeof(float) * 3 * 3);
}

TEST(ArenaSlot, SpreadsChunksAndTensors) {
  std::vector<int> held(3);
  for (uint32_t tensor = 0; tensor < 30; ++tensor) ++held[shard_of(tensor, 0, 3, nullptr)];
  EXPECT_THAT(held, Each(10));
  for (uint32_t chunk = 0; chunk < 30; ++chunk) ++held[shard_of(7, chunk, 3, nullptr)];
  EXPECT_THAT(held, Each(20));
}

}  // namespace
}  // namespace gradbus
