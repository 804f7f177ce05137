// Shards with a copy of every chunk (mode option replicas=2): what a shadow becomes, and jobs that
// lose a shard at any moment. Values are small integers in f32 and rates are 1, so a sum tells
// whether each push was counted, and once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <random>

#include "proto/placement.h"
#include "tests/unit/worker_agent/engine_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::kJob;
using test::Layout;
using testing::Each;
using testing::HasSubstr;

constexpr uint64_t kChunk = 64;
constexpr uint64_t kCount = 400;  // 7 chunks

TensorSpec spec_of(ReduceOp op) {
  TensorSpec spec;
  spec.name = "t";
  spec.count = kCount;
  spec.op = op;
  return spec;
}

// ---- a shadow

// A tensor on its shard and its copy, told of the same pushes in the same order.
class Shadow : public testing::Test {
 protected:
  static constexpr uint32_t kAgents = 3;

  void open(const std::string& mode) {
    plan_.collective.count = kCount;
    plan_.collective.chunk_elements = kChunk;
    plan_.collective.agents = kAgents;
    plan_.collective.shards = 2;
    plan_.name = "t";
    plan_.mode = parse_mode(mode).take();
    plan_.ranks.assign(kAgents, 1);
    first_ = make_shard_tensor(plan_, *transport_).take();
    copy_ = make_shard_tensor(plan_, *transport_).take();
    copy_->begin_as_shadow();
  }

  static FrameHeader header(uint64_t round, uint32_t chunk) {
    FrameHeader push;
    push.kind = static_cast<uint8_t>(FrameKind::kReduce);
    push.dtype = static_cast<uint8_t>(DType::kF32);
    push.op = static_cast<uint8_t>(ReduceOp::kSum);
    push.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
    push.step = round;
    push.chunk = chunk;
    push.length = static_cast<uint32_t>(std::min(kChunk, kCount - chunk * kChunk) * sizeof(float));
    push.total = kCount;
    return push;
  }

  // Both take it; what the first one answers is sent at once.
  void push(uint32_t agent, uint64_t round, uint32_t chunk, float value) {
    const FrameHeader push = header(round, chunk);
    const std::vector<float> values(push.length / sizeof(float), value);
    for (ShardTensor* tensor : {first_.get(), copy_.get()}) {
      std::vector<ShardAnswer> answers;
      ASSERT_TRUE(tensor->on_push(agent, push, std::as_bytes(std::span(values)), 1, answers).ok());
      for (const ShardAnswer& answer : answers) {
        EXPECT_EQ(tensor->reaches(answer.agent, answer.chunk), tensor == first_.get());
        tensor->on_sent(answer);
        if (tensor == first_.get()) answered_[{answer.agent, answer.chunk}] = answer.round;
      }
    }
  }

  std::vector<float> parameters(const ShardTensor& tensor, uint32_t chunk) {
    SnapshotPiece piece;
    std::vector<float> values;
    EXPECT_TRUE(tensor.save(chunk, piece, values));
    values.push_back(static_cast<float>(piece.steps));
    return values;
  }

  const std::unique_ptr<Transport> transport_ = test::loopback();
  ShardPlan plan_;
  std::unique_ptr<ShardTensor> first_, copy_;
  std::map<std::pair<uint32_t, uint32_t>, uint64_t> answered_;  // by agent and chunk: round
};

// Expect: the same bits, also of what the optimizer remembers, wherever agents wait for others.
TEST_F(Shadow, HasTheBitsOfWhatItCopies) {
  for (const char* mode : {"ps:async,optimizer=adam,lr=0.1", "ps:ssp,max_staleness=1,momentum=0.9",
                           "ps:quorum,q=2,optimizer=adagrad"}) {
    open(mode);
    answered_.clear();
    std::mt19937 random(7);
    std::map<std::pair<uint32_t, uint32_t>, uint64_t> pushed;
    for (int i = 0; i < 600; ++i) {
      const auto agent = static_cast<uint32_t>(random() % kAgents);
      const uint32_t chunk = 2 * static_cast<uint32_t>(random() % 4);
      if (pushed[{agent, chunk}] != answered_[{agent, chunk}]) continue;
      const float value = static_cast<float>(random()) * 1e-9F - 2;
      push(agent, ++pushed[{agent, chunk}], chunk, value);
    }
    for (uint32_t chunk = 0; chunk < 8; chunk += 2)
      EXPECT_EQ(parameters(*first_, chunk), parameters(*copy_, chunk)) << mode << " " << chunk;
  }
}

// Expect: a push that the shadow has taken is answered and changes nothing, one that it has not is
// left to be taken; either way the agent gets answers from then on.
TEST_F(Shadow, KnowsWhatItHasTaken) {
  open("ps:async,lr=1");
  for (uint32_t agent = 0; agent < kAgents; ++agent) push(agent, 1, 0, 100);
  push(1, 2, 0, 3);
  std::vector<ShardAnswer> answers;
  EXPECT_TRUE(copy_->come_over(1, header(2, 0), answers));
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].round, 2u);
  EXPECT_EQ(answers[0].agent, 1u);
  EXPECT_EQ(parameters(*copy_, 0)[0], 97);
  answers.clear();
  EXPECT_FALSE(copy_->come_over(0, header(2, 0), answers));
  EXPECT_TRUE(answers.empty());
  EXPECT_TRUE(copy_->reaches(0, 0));
  EXPECT_FALSE(copy_->reaches(0, 2)) << "each chunk on its own";
}

// Expect: one that waits for others is answered when they are there, not before.
TEST_F(Shadow, AnswersWhenTheOthersAreThere) {
  open("ps:sync");
  push(0, 1, 0, 1);
  push(1, 1, 0, 2);
  std::vector<ShardAnswer> answers;
  EXPECT_TRUE(copy_->come_over(0, header(1, 0), answers));
  EXPECT_TRUE(answers.empty());
  const std::vector<float> values(kChunk, 4);
  const auto bytes = std::as_bytes(std::span(values));
  EXPECT_FALSE(copy_->come_over(2, header(1, 0), answers));
  ASSERT_TRUE(copy_->on_push(2, header(1, 0), bytes, 1, answers).ok());
  std::vector<uint32_t> reached;
  for (const ShardAnswer& answer : answers)
    if (copy_->reaches(answer.agent, 0)) reached.push_back(answer.agent);
  EXPECT_THAT(reached, testing::ElementsAre(0, 2));
}

// ---- a job that loses a shard

std::unique_ptr<Transport> unreliable() {
  static uint64_t seed = 0;
  return make_faulty(test::loopback(),
                     {.seed = ++seed, .busy = 0.2, .delay = 0.3, .reorder = true});
}

struct Loss {
  const char* mode;
  uint32_t shards;
  bool faults;
  std::vector<uint16_t> pattern = {};  // none: equal parts
};

class LostShard : public testing::TestWithParam<Loss> {
 protected:
  static constexpr uint32_t kAgents = 2;
  static constexpr uint64_t kSteps = 5;

  static float gradient(uint32_t agent, uint64_t step) {
    return static_cast<float>(agent * 10 + step);
  }

  void open() {
    Layout layout{.agents = kAgents, .ranks_per_agent = 2, .shards = GetParam().shards};
    if (GetParam().faults) layout.transport = unreliable;
    if (!GetParam().pattern.empty())
      layout.pattern = std::make_shared<const std::vector<uint16_t>>(GetParam().pattern);
    cluster_ = std::make_unique<Cluster>(layout);
    cluster_->add_on_shards(0, spec_of(ReduceOp::kAverage), kChunk, GetParam().mode);
    for (Worker& worker : workers_) worker = {};
  }
  bool sync() const { return std::string(GetParam().mode).starts_with("ps:sync"); }

  // Every agent that has its result makes its next step; all turn once.
  void turn() {
    for (uint32_t agent = 0; agent < kAgents; ++agent) {
      Worker& worker = workers_[agent];
      CompletionRecord record;
      for (uint32_t local = 0; local < 2; ++local)
        while (cluster_->nodes[agent]->clients[local].completions.pop(record) == Pop::kRecord)
          ++worker.completions;
      if (worker.completions == 2 * worker.rounds && worker.rounds > 0) took(agent);
      if (worker.completions == 2 * worker.rounds && worker.rounds <= kSteps + 1) step(agent);
    }
    cluster_->turn(1);
  }

  // Round 1 sets parameters to 0, the last one pulls what came of all steps.
  void step(uint32_t agent) {
    Worker& worker = workers_[agent];
    const bool last = worker.rounds == kSteps + 1;
    if (last && !sync() && !everybody_made_its_steps()) return;
    if (last && sync()) return;
    const float value = worker.rounds == 0 ? 0 : gradient(agent, worker.rounds);
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    record.pull_only = last ? 1 : 0;
    ++worker.rounds;
    for (uint32_t local = 0; local < 2; ++local) {
      std::fill_n(cluster_->data(agent, local, 0), kCount, value);
      cluster_->post(agent, local, 0, worker.rounds, record);
    }
  }
  bool everybody_made_its_steps() const {
    return std::ranges::all_of(workers_, [](const Worker& worker) {
      return worker.rounds > kSteps && worker.completions == 2 * worker.rounds;
    });
  }
  // ps:sync: each round's result is the mean of that round.
  void took(uint32_t agent) {
    Worker& worker = workers_[agent];
    if (!sync() || worker.rounds < 2 || worker.checked == worker.rounds) return;
    worker.checked = worker.rounds;
    const float wanted =
        (gradient(0, worker.rounds - 1) + gradient(1, worker.rounds - 1)) / kAgents;
    for (uint32_t local = 0; local < 2; ++local)
      ASSERT_THAT(values(agent, local), Each(wanted)) << "round " << worker.rounds;
  }
  std::vector<float> values(uint32_t agent, uint32_t local) {
    const float* data = cluster_->data(agent, local, 0);
    return {data, data + kCount};
  }
  bool done() const {
    return std::ranges::all_of(workers_, [&](const Worker& worker) {
      return worker.rounds == kSteps + (sync() ? 1 : 2) && worker.completions == 2 * worker.rounds;
    });
  }

  // Loses the shard after so many turns; everybody hears of it at another time.
  void run(uint32_t lost, int moment, std::mt19937& random) {
    open();
    for (int i = 0; i < moment; ++i) turn();
    cluster_->kill(kAgents + lost);
    std::vector<uint32_t> untold;
    for (uint32_t node = 0; node < kAgents + GetParam().shards; ++node)
      if (node != kAgents + lost) untold.push_back(node);
    std::ranges::shuffle(untold, random);
    for (const uint32_t node : untold) {
      for (uint64_t turns = random() % 12; turns > 0; --turns) turn();
      cluster_->nodes[node]->engine.post(LoseShard{kJob, lost});
    }
    for (const Nanos deadline = monotonic_now() + 60 * kSecond;
         !done() && monotonic_now() < deadline;)
      turn();
  }

  struct Worker {
    uint64_t rounds = 0;  // posted
    uint64_t completions = 0;
    uint64_t checked = 0;
  };
  std::unique_ptr<Cluster> cluster_;
  std::array<Worker, kAgents> workers_;
};

// Expect: whichever shard is lost, and whenever, all steps are made, and each counts once.
TEST_P(LostShard, LosesNothing) {
  std::mt19937 random(11);
  float wanted = 0;
  for (uint32_t agent = 0; agent < kAgents; ++agent)
    for (uint64_t step = 1; step <= kSteps; ++step) wanted -= gradient(agent, step);
  if (std::string(GetParam().mode).starts_with("ps:quorum")) wanted /= kAgents;
  for (int moment = 0; moment < 60; moment += 1 + moment / 16) {
    for (uint32_t lost = 0; lost < GetParam().shards; ++lost) {
      run(lost, moment, random);
      ASSERT_TRUE(done()) << "shard " << lost << " at turn " << moment;
      for (auto& node : cluster_->nodes)
        for (const JobBroken& broken : node->broken.take())
          FAIL() << broken.status.message() << " at turn " << moment;
      for (uint32_t agent = 0; agent < kAgents && !sync(); ++agent)
        ASSERT_THAT(values(agent, 0), Each(wanted)) << "shard " << lost << " at turn " << moment;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Modes, LostShard,
    testing::Values(Loss{"ps:async,lr=1,replicas=2", 3, false},
                    Loss{"ps:async,lr=1,replicas=2", 2, true}, Loss{"ps:sync,replicas=2", 3, false},
                    Loss{"ps:sync,replicas=2", 2, true},
                    Loss{"ps:ssp,max_staleness=1,lr=1,replicas=2", 3, true},
                    Loss{"ps:quorum,q=2,lr=1,replicas=2", 3, false},
                    Loss{"ps:async,lr=1,replicas=2", 3, true, {2, 0, 2}},
                    Loss{"ps:sync,replicas=2", 3, false, {1, 1, 0, 1, 2}},
                    Loss{"ps:quorum,q=2,deadline_ms=60000,lr=1,replicas=2", 4, true}));

// Expect: the deadline closes a step on both shards, so a lost one changes nothing; the copy keeps
// deadlines itself from then on.
TEST(LostShards, DeadlinesAreCopied) {
  Cluster cluster({.agents = 2, .shards = 2});
  cluster.add_on_shards(0, spec_of(ReduceOp::kSum), kChunk,
                        "ps:quorum,q=2,deadline_ms=20,lr=1,replicas=2");
  uint64_t round = 0;
  const auto push = [&](uint32_t agent, uint64_t number, float value) {
    std::fill_n(cluster.data(agent, 0, 0), kCount, value);
    cluster.post(agent, 0, 0, number);
  };
  const auto result = [&](uint32_t agent) {
    EXPECT_EQ(cluster.completions(agent, 0, 1).size(), 1u);
    return std::vector<float>(cluster.data(agent, 0, 0), cluster.data(agent, 0, 0) + kCount);
  };
  ++round;
  push(0, round, 100);
  push(1, round, 0);
  EXPECT_THAT(result(0), Each(100.0F));
  EXPECT_THAT(result(1), Each(100.0F));
  push(1, ++round, 5);
  EXPECT_THAT(result(1), Each(95.0F));
  cluster.kill(2);
  for (const uint32_t node : {0, 1, 3}) cluster.nodes[node]->engine.post(LoseShard{kJob, 0});
  push(1, ++round, 7);
  EXPECT_THAT(result(1), Each(88.0F));
}

// Expect: without copies a lost link ends the job at once; with them, when nobody says within the
// deadline that the shard is lost.
TEST(LostShards, ALinkThatEndsNeedsAWord) {
  for (const char* mode : {"ps:async", "ps:async,replicas=2"}) {
    Cluster cluster({.agents = 1, .shards = 2});
    cluster.add_on_shards(0, spec_of(ReduceOp::kSum), kChunk, mode);
    cluster.turn(50);
    const Nanos began = monotonic_now();
    cluster.kill(1);
    const auto broken = cluster.broken(0);
    ASSERT_EQ(broken.size(), 1u);
    EXPECT_THAT(broken[0].status.message(), HasSubstr("GB-P102 LINK_LOST"));
    EXPECT_THAT(broken[0].status.message(), HasSubstr("shard 0"));
    const bool copies = std::string(mode) != "ps:async";
    EXPECT_EQ(monotonic_now() - began >= kShardLossDeadline, copies);
  }
}

TEST(Placement, TheBackupIsAnotherShard) {
  for (uint32_t shards = 2; shards < 6; ++shards) {
    for (uint32_t shard = 0; shard < shards; ++shard) {
      EXPECT_NE(backup_of(shard, shards), shard);
      EXPECT_EQ(backed_up_by(backup_of(shard, shards), shards), shard);
    }
  }
}

}  // namespace
}  // namespace gradbus
