// Tests tensors that move with the job's shards. Their state, and that of their copies, must not
// change by a bit, wherever chunks begin. A job that moves is compared with one that does not.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "tests/unit/data_plane/engine_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::kJob;
using test::Layout;
using testing::HasSubstr;

constexpr uint64_t kCount = 400;
constexpr uint64_t kOldChunk = 64, kNewChunk = 48;  // parts of up to two old chunks make a new one

std::unique_ptr<Transport> unreliable() {
  static uint64_t seed = 0;
  return make_faulty(test::loopback(),
                     {.seed = ++seed, .busy = 0.2, .delay = 0.3, .reorder = true});
}

TensorSpec spec(uint64_t count = kCount) {
  TensorSpec spec;
  spec.name = "t";
  spec.count = count;
  return spec;
}

struct Move {
  std::string mode;
  bool faults = false;
  std::string codec = "none";
  bool large = false;  // whether a shard's state exceeds one frame

  uint64_t count() const { return large ? 600'000 : kCount; }
  uint64_t old_chunk() const { return large ? 1 << 15 : kOldChunk; }
  uint64_t new_chunk() const { return large ? 3 << 14 : kNewChunk; }
  bool coded() const { return codec != "none"; }
  // Partitions of two chunks, or of ten.
  CompressionPlan compression(uint64_t chunk) const {
    if (!coded()) return {};
    return {parse_compression(codec).take(), Communicator::kPs, (large ? 10 : 2) * chunk, 0};
  }
};

void PrintTo(const Move& move, std::ostream* out) {
  *out << move.mode << " " << move.codec << (move.faults ? " faults" : "")
       << (move.large ? " large" : "");
}

class Moving : public testing::TestWithParam<Move> {
 protected:
  void open() {
    Layout layout{.agents = 1, .shards = 2};
    if (GetParam().faults) layout.transport = unreliable;
    cluster_ = std::make_unique<Cluster>(layout);
    const Move& move = GetParam();
    // Number 0 means no predecessor. Of whole tensors, 2 and 3 are on different shards.
    for (tensor_ = 0; tensor_ < 2; ++tensor_) cluster_->add_tensor(tensor_, 1, 1);
    cluster_->add_to_agents(tensor_, spec(move.count()), move.old_chunk(), mode(),
                            move.compression(move.old_chunk()));
    cluster_->add_to_shards(tensor_, spec(move.count()), move.old_chunk(), move.mode, 0,
                            move.compression(move.old_chunk()));
    round_ = 0;
    random_.seed(3);
  }
  static SyncMode mode() { return parse_mode(GetParam().mode).take(); }
  uint32_t replicas() const { return std::max(1U, mode().replicas); }
  ReshardingPlan from(uint64_t chunk, std::vector<uint16_t> members = {}) const {
    const Move& move = GetParam();
    ReshardingPlan plan{tensor_, move.coded() ? move.compression(chunk).partition_elements : chunk,
                        2, replicas()};
    plan.one_shard = mode().keeps_tensors_whole();
    if (plan.one_shard) plan.chunk_elements = move.count();
    if (members.empty()) return plan;
    plan.shards = static_cast<uint32_t>(members.size());
    plan.members = std::make_shared<const std::vector<uint16_t>>(std::move(members));
    return plan;
  }

  void post(float value_scale) {
    float* const data = cluster_->data(0, 0, tensor_);
    for (uint64_t i = 0; i < GetParam().count(); ++i)
      data[i] = value_scale * (static_cast<float>(random_() % 2000) * 1e-3F - 1);
    cluster_->post(0, 0, tensor_, ++round_);
  }
  void finish() { ASSERT_EQ(cluster_->completions(0, 0, 1).size(), 1u); }
  void steps(int count) {
    for (int i = 0; i < count; ++i) {
      post(1);
      finish();
    }
  }
  // Moves the tensor to these shards. The agent may get the message long before them.
  void move(const std::vector<uint16_t>& members, const ReshardingPlan& from, int head_start) {
    const std::mt19937 random = random_;
    begin_move(members, from, head_start);
    finish();
    random_ = random;
  }
  void begin_move(const std::vector<uint16_t>& members, const ReshardingPlan& from,
                  int head_start) {
    cluster_->move_to(members, from);
    ++tensor_;
    round_ = 0;
    const Move& move = GetParam();
    const CompressionPlan compression = move.compression(move.new_chunk());
    cluster_->add_to_agents(tensor_, spec(move.count()), move.new_chunk(), mode(), compression);
    post(12345);  // the first round has no result to compare
    cluster_->turn(head_start);
    cluster_->add_to_shards(tensor_, spec(move.count()), move.new_chunk(), move.mode, head_start,
                            compression);
  }
  // The outcome of the current round: success, or the reason why the job failed.
  std::string outcome() {
    CompletionRecord record;
    for (const Nanos deadline = monotonic_now() + 30 * kSecond; monotonic_now() < deadline;
         cluster_->turn(1)) {
      for (auto& node : cluster_->nodes)
        for (const JobBroken& broken : node->broken.take()) return broken.status.message();
      if (cluster_->nodes[0]->clients[0].completions.pop(record) == Pop::kRecord) return "";
    }
    return "neither";
  }
  void lose(uint32_t shard) {
    cluster_->kill(1 + shard);
    for (uint32_t node = 0; node < cluster_->nodes.size(); ++node)
      if (node != 1 + shard) cluster_->nodes[node]->engine.post(LoseShard{kJob, shard});
  }
  // The values on the shards, including the parts that a codec has not sent yet.
  std::vector<float> values() {
    if (GetParam().coded()) {
      Submission pull{};
      pull.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
      pull.ps_request = 1;
      cluster_->post(0, 0, tensor_, ++round_, pull);
      finish();
    }
    const float* data = cluster_->data(0, 0, tensor_);
    return {data, data + GetParam().count()};
  }
  std::vector<float> without_a_move(int count) {
    open();
    steps(count);
    return values();
  }
  void expect_whole() {
    for (auto& node : cluster_->nodes)
      for (const JobBroken& broken : node->broken.take()) ADD_FAILURE() << broken.status.message();
  }

  std::unique_ptr<Cluster> cluster_;
  uint32_t tensor_ = 0;
  uint64_t round_ = 0;
  std::mt19937 random_;
};

// Expect: a new shard gets its part with the optimizer state.
TEST_P(Moving, ToAShardThatComes) {
  const std::vector<float> wanted = without_a_move(11);
  for (const int head_start : {0, 3, 40}) {
    open();
    steps(6);
    const std::vector<float> before = values();
    cluster_->add_shard();
    move({0, 1, 2}, from(GetParam().old_chunk()), head_start);
    EXPECT_EQ(values(), before);
    steps(5);
    EXPECT_EQ(values(), wanted) << head_start;
    EXPECT_GT(cluster_->received_by_shard(2), 0u);
    expect_whole();
  }
}

// Expect: after a loss there are copies again, also of chunks that were on a copy.
TEST_P(Moving, AfterALossThereAreCopiesAgain) {
  if (replicas() < 2) GTEST_SKIP() << "there is one copy";
  const std::vector<float> wanted = without_a_move(16);
  for (const uint16_t first : {0, 1}) {
    open();
    steps(4);
    lose(first);
    steps(2);
    const uint16_t other = 1 - first;
    cluster_->add_shard();
    cluster_->nodes[3]->engine.post(LoseShard{kJob, first});
    move({other, 2}, from(GetParam().old_chunk()), 3);
    steps(5);
    lose(other);
    steps(5);
    EXPECT_EQ(values(), wanted) << first;
    expect_whole();
  }
}

// Expect: a shard that is lost at any moment of a move ends the job with a clear message, or loses
// nothing.
TEST_P(Moving, LossesAtEveryMoment) {
  if (replicas() < 2) GTEST_SKIP() << "there is one copy";
  const std::vector<float> wanted = without_a_move(8);
  int ended = 0, went_on = 0;
  for (int moment = 0; moment < 48; ++moment) {
    open();
    steps(4);
    cluster_->add_shard();
    const std::mt19937 random = random_;
    begin_move({0, 1, 2}, from(GetParam().old_chunk()), 0);
    cluster_->turn(moment / 3 * (GetParam().faults ? 8 : 1));
    lose(static_cast<uint32_t>(moment % 3));
    const std::string why = outcome();
    if (!why.empty()) {
      ++ended;
      EXPECT_THAT(why, AllOf(HasSubstr("GB-P103"), HasSubstr("being sent to other shards")));
      continue;
    }
    ++went_on;
    random_ = random;
    steps(4);
    EXPECT_EQ(values(), wanted) << moment;
    expect_whole();
  }
  EXPECT_GT(ended, 0);
  EXPECT_GT(went_on, 16);  // others do not wait for a new shard, which has no state yet
}

// Expect: a tensor may move again and again, also to its current shards.
TEST_P(Moving, AgainAndAgain) {
  const std::vector<float> wanted = without_a_move(12);
  open();
  steps(3);
  move({0, 1}, from(GetParam().old_chunk()), 0);
  steps(3);
  cluster_->add_shard();
  move({2, 0, 1}, from(GetParam().new_chunk(), {0, 1}), 5);
  steps(3);
  move({0, 1, 2}, from(GetParam().new_chunk(), {2, 0, 1}), 1);
  steps(3);
  EXPECT_EQ(values(), wanted);
  expect_whole();
}

INSTANTIATE_TEST_SUITE_P(
    Modes, Moving,
    testing::Values(Move{"ps:async,momentum=0.9,lr=0.1"},
                    Move{"ps:async,momentum=0.9,lr=0.1,replicas=2"},
                    Move{"ps:async,optimizer=adam,lr=0.1,replicas=2", true},
                    Move{"ps:ssp,max_staleness=1,optimizer=adagrad,lr=0.1,replicas=2"},
                    Move{"ps:quorum,q=1,optimizer=adam,lr=0.1,replicas=2", true},
                    Move{"ps:async,optimizer=adamw,lr=0.1", true},
                    Move{"ps:async,optimizer=lamb,lr=0.1,replicas=2"},
                    Move{"ps:quorum,q=1,optimizer=lamb,lr=0.1,replicas=2", true},
                    Move{"ps:async,optimizer=lamb,lr=0.1,replicas=2", true, "none", true},
                    // Pushes are equal, whatever else is rounded with them, so parameters are
                    // equal.
                    Move{"ps:async,momentum=0.9,lr=0.1", false, "fp16"},
                    Move{"ps:ssp,max_staleness=1,optimizer=adam,lr=0.1,replicas=2", true, "fp16"},
                    Move{"ps:async,optimizer=adam,lr=0.1,replicas=2", false, "fp16", true}));

struct Moves {
  std::string mode;
  uint32_t times;
  bool faults;
};

void PrintTo(const Moves& moves, std::ostream* out) {
  *out << moves.mode << " " << moves.times << (moves.faults ? " faults" : "");
}

std::vector<Moves> every_moves() {
  std::vector<Moves> all;
  for (const char* mode :
       {"ps:async,lr=1", "ps:async,lr=1,replicas=2", "ps:sync", "ps:sync,replicas=2"})
    for (const uint32_t times : {1, 2, 3})
      for (const bool faults : {false, true}) all.push_back({mode, times, faults});
  return all;
}

class ReshardedTimes : public testing::TestWithParam<Moves> {};

CompressionPlan topk_plan(uint64_t partition) {
  return {parse_compression("topk:ratio=0.1").take(), Communicator::kPs, partition, 0};
}

// Expect: residuals move along, on agents and on shards that sum payloads. At the end everything
// that was pushed has arrived. The same holds when a shard is lost after the move, and after
// several moves without a round between them.
TEST_P(ReshardedTimes, WhatCodecsLeaveOutMoves) {
  const std::string& mode = GetParam().mode;
  const uint32_t times = GetParam().times;
  const bool faults = GetParam().faults;
  const bool sums = mode.starts_with("ps:sync");
  const bool copies = parse_mode(mode).take().replicas > 1;
  Layout layout{.agents = 2, .shards = 2};
  if (faults) layout.transport = unreliable;
  Cluster cluster(layout);
  cluster.add_tensor(0, 1, 1);  // number 0 means no predecessor
  cluster.add_compressed(1, spec(), kOldChunk, Algorithm::kShards, topk_plan(2 * kOldChunk), mode);
  uint64_t round = 0;
  std::vector<float> wanted(kCount), got(kCount);
  const auto make_round = [&](uint32_t tensor, float scale, bool pull = false) {
    ++round;
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    record.ps_request = pull ? 1 : 0;
    for (uint32_t agent = 0; agent < 2; ++agent) {
      for (uint64_t i = 0; i < kCount; ++i) {
        const float value = scale * (static_cast<float>((i * 7 + round * 3 + agent) % 11) - 5);
        cluster.data(agent, 0, tensor)[i] = value;
        wanted[i] += sums ? value : -value;
      }
      cluster.post(agent, 0, tensor, round, record);
    }
    for (uint32_t agent = 0; agent < 2; ++agent)
      ASSERT_EQ(cluster.completions(agent, 0, 1).size(), 1u) << mode << " round " << round;
    for (uint64_t i = 0; i < kCount; ++i)
      got[i] = (sums ? got[i] : 0) + cluster.data(1, 0, tensor)[i];
  };
  if (!sums) make_round(1, 0);
  for (int i = 0; i < 6; ++i) make_round(1, 1);
  cluster.add_shard();
  ReshardingPlan from{1, 2 * kOldChunk, 2, copies ? 2U : 1U};
  const uint32_t last = 1 + times;
  for (uint32_t tensor = 2; tensor <= last; ++tensor) {
    const uint64_t chunk = tensor % 2 == 0 ? kNewChunk : kOldChunk;
    std::vector<uint16_t> members = {0, 1, 2};
    std::rotate(members.begin(), members.begin() + tensor % 3, members.end());
    cluster.move_to(members, from);
    cluster.add_compressed(tensor, spec(), chunk, Algorithm::kShards, topk_plan(3 * chunk), mode);
    from = {tensor, 3 * chunk, 3, copies ? 2U : 1U};
    from.members = std::make_shared<const std::vector<uint16_t>>(members);
  }
  round = 0;
  make_round(last, 0);
  EXPECT_NE(got, wanted) << "nothing was left out";
  if (copies) {
    cluster.kill(3);
    for (const uint32_t node : {0, 1, 2, 4}) cluster.nodes[node]->engine.post(LoseShard{kJob, 1});
  }
  for (int i = 0; i < 40; ++i) make_round(last, 0);
  if (!sums) make_round(last, 0, true);
  EXPECT_EQ(got, wanted) << mode;
  for (auto& node : cluster.nodes)
    for (const JobBroken& broken : node->broken.take()) ADD_FAILURE() << broken.status.message();
}

INSTANTIATE_TEST_SUITE_P(Modes, ReshardedTimes, testing::ValuesIn(every_moves()));

// Expect: ssp counts steps from the fence on, also those of an agent that has made none. A quorum
// counts all agents.
TEST(Moved, AllAreWaitedForAfterTheFence) {
  for (const std::string mode : {"ps:quorum,q=2", "ps:ssp,max_staleness=1"}) {
    Cluster cluster({.agents = 2, .shards = 2});
    cluster.add_on_shards(0, spec(), kOldChunk, mode);
    const auto all_post_first = [&](uint32_t tensor) {
      for (const uint32_t agent : {0, 1}) cluster.post(agent, 0, tensor, 1);
      for (const uint32_t agent : {0, 1}) ASSERT_EQ(cluster.completions(agent, 0, 1).size(), 1u);
    };
    all_post_first(0);
    cluster.move_to({1, 0}, {0, kOldChunk, 2, 1});
    cluster.add_on_shards(1, spec(), kNewChunk, mode);
    all_post_first(1);
    for (uint64_t round = 2; round < 7; ++round) {
      cluster.post(0, 0, 1, round);
      if (mode == "ps:ssp,max_staleness=1" && round == 2) {  // one step ahead from here on
        ASSERT_EQ(cluster.completions(0, 0, 1).size(), 1u) << mode;
        continue;
      }
      cluster.turn(300);
      CompletionRecord record;
      ASSERT_EQ(cluster.nodes[0]->clients[0].completions.pop(record), Pop::kEmpty) << mode << round;
      cluster.post(1, 0, 1, mode == "ps:quorum,q=2" ? round : round - 1);
      for (const uint32_t agent : {0, 1})
        ASSERT_EQ(cluster.completions(agent, 0, 1).size(), 1u) << mode << round;
    }
  }
}

// Expect: a shard that is lost before it has sent state that others need ends the job.
TEST(LostMoves, EndTheJob) {
  Cluster cluster({.agents = 1, .shards = 2});
  cluster.add_on_shards(0, spec(), kOldChunk, "ps:async,replicas=2");
  std::fill_n(cluster.data(0, 0, 0), kCount, 1);
  cluster.post(0, 0, 0, 1);
  ASSERT_EQ(cluster.completions(0, 0, 1).size(), 1u);
  cluster.add_shard();
  cluster.move_to({0, 1, 2}, {0, kOldChunk, 2, 2});
  cluster.add_to_agents(1, spec(), kNewChunk, parse_mode("ps:async,replicas=2").take());
  for (const uint32_t place : {1, 2}) {  // shard 0 does not know about the loss
    cluster.add_to_shard(place, 1, spec(), kNewChunk, "ps:async,replicas=2");
    cluster.add_copy(place, 1, spec(), kNewChunk, "ps:async,replicas=2");
  }
  cluster.turn(20);
  cluster.kill(1);
  for (const uint32_t node : {0, 2, 3}) cluster.nodes[node]->engine.post(LoseShard{kJob, 0});
  const auto broken = cluster.broken(3);
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_THAT(broken[0].status.message(),
              AllOf(HasSubstr("GB-P103"), HasSubstr("being sent to other shards")));
}

// Expect: before the first round there is no state to move.
TEST(LostMoves, BeforeTheFirstRoundNothingMoves) {
  Cluster cluster({.agents = 1, .shards = 2});
  cluster.add_on_shards(0, spec(), kOldChunk, "ps:async");
  cluster.move_to({0, 1}, {0, kOldChunk, 2, 1});
  cluster.add_on_shards(1, spec(), kNewChunk, "ps:async");
  const auto broken = cluster.broken(1);
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_THAT(broken[0].status.message(), HasSubstr("before its first round"));
}

}  // namespace
}  // namespace gradbus
