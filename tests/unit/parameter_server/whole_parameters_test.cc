// Tests tensors on which shards step as a whole (optimizer=lamb), on real engines. Expected values:
// algorithm 2 of You et al. 2020, in doubles, with the norms of the whole tensor.
#include "server/parameter_server/whole_parameters.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <bit>
#include <cmath>
#include <filesystem>
#include <limits>
#include <random>

#include "proto/placement.h"
#include "tests/unit/data_plane/engine_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::Layout;
using test::loopback_by;
using test::ManualClock;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;
using Vector = std::vector<float>;

constexpr uint64_t kCount = 1000;
constexpr uint64_t kChunk = 64;  // the last one is shorter
constexpr uint32_t kChunks = 16;

std::unique_ptr<Transport> unreliable() {
  static uint64_t seed = 900;
  return make_faulty(test::loopback(),
                     {.seed = ++seed, .busy = 0.3, .delay = 0.3, .reorder = true});
}

class Lamb {
 public:
  Lamb(const std::string& mode, const Vector& start)
      : options_(parse_mode(mode).take().optimizer),
        w_(start.begin(), start.end()),
        m_(start.size()),
        v_(start.size()) {}

  void step(const Vector& gradient, double rate) {
    ++steps_;
    const auto& o = options_;
    std::vector<double> u(w_.size());
    double of_w = 0;
    double of_u = 0;
    for (size_t i = 0; i < w_.size(); ++i) {
      const double g = gradient[i];
      m_[i] = o.beta1 * m_[i] + (1 - o.beta1) * g;
      v_[i] = o.beta2 * v_[i] + (1 - o.beta2) * g * g;
      const double mean = m_[i] / (1 - std::pow(o.beta1, steps_));
      const double square = v_[i] / (1 - std::pow(o.beta2, steps_));
      u[i] = mean / (std::sqrt(square) + o.epsilon) + o.weight_decay * w_[i];
      of_w += w_[i] * w_[i];
      of_u += u[i] * u[i];
    }
    const double ratio = of_w > 0 && of_u > 0 ? std::sqrt(of_w / of_u) : 1;
    for (size_t i = 0; i < w_.size(); ++i) w_[i] -= rate * ratio * u[i];
  }
  // The largest distance of an element of `mine`, relative to the largest element.
  double distance(const Vector& mine) const {
    double most = 0;
    double largest = 0;
    for (size_t i = 0; i < w_.size(); ++i) {
      most = std::max(most, std::abs(mine[i] - w_[i]));
      largest = std::max(largest, std::abs(w_[i]));
    }
    return most / largest;
  }

 private:
  const ServerOptimizer options_;
  std::vector<double> w_, m_, v_;
  int steps_ = 0;
};

constexpr double kRounding = 1e-5;

// Chunks have very different sizes, so the norm of one is far from that of the whole tensor.
Vector random_values(uint32_t seed, uint64_t count = kCount) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Vector values(count);
  for (uint64_t i = 0; i < count; ++i)
    values[i] = normal(random) * static_cast<float>(1 + 9 * (i / kChunk % 3));
  return values;
}

// Engines of a layout with `tensors` tensors, whose ranks push and pull.
class Job {
 public:
  Job(const Layout& layout, const std::string& mode, uint64_t count = kCount, uint32_t tensors = 1)
      : cluster_(layout), count_(count), rounds_(layout.agents, std::vector<uint64_t>(tensors)) {
    TensorSpec spec;
    spec.name = "t";
    spec.count = count;
    spec.op = ReduceOp::kAverage;
    for (uint32_t tensor = 0; tensor < tensors; ++tensor)
      cluster_.add_on_shards(tensor, spec, kChunk, mode);
  }

  void push(uint32_t agent, const Vector& values, double rate = 0, uint32_t tensor = 0) {
    Submission record = posted();
    record.learning_rate = rate;
    start(agent, values, record, tensor);
  }
  void push(uint32_t agent, float value, double rate = 0) {
    push(agent, Vector(count_, value), rate);
  }
  void pull(uint32_t agent) {
    Submission record = posted();
    record.ps_request = 1;
    start(agent, Vector(count_, 1000), record, 0);
  }
  Vector result(uint32_t agent, uint32_t tensor = 0) {
    for (uint32_t local = 0; local < cluster_.layout().ranks_per_agent; ++local)
      EXPECT_THAT(cluster_.completions(agent, local, 1), SizeIs(1)) << why();
    const float* data = cluster_.data(agent, 0, tensor);
    return {data, data + count_};
  }
  bool answered(uint32_t agent) {
    cluster_.turn(300);
    CompletionRecord record;
    return cluster_.nodes[agent]->clients[0].completions.pop(record) == Pop::kRecord;
  }
  // The parameters of agent 0 become those of all.
  void set(const Vector& parameters) {
    for (uint32_t agent = 0; agent < rounds_.size(); ++agent)
      push(agent, agent == 0 ? parameters : Vector(count_, -7));
    for (uint32_t agent = 0; agent < rounds_.size(); ++agent)
      ASSERT_EQ(result(agent), parameters) << "agent " << agent;
  }
  Cluster& cluster() { return cluster_; }

 private:
  static Submission posted() {
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    return record;
  }
  void start(uint32_t agent, const Vector& values, const Submission& record, uint32_t tensor) {
    const uint64_t round = ++rounds_[agent][tensor];
    for (uint32_t local = 0; local < cluster_.layout().ranks_per_agent; ++local) {
      std::ranges::copy(values, cluster_.data(agent, local, tensor));
      cluster_.post(agent, local, tensor, round, record);
    }
  }
  std::string why() {
    std::string text;
    for (auto& node : cluster_.nodes)
      for (const JobBroken& broken : node->broken.take()) text += broken.status.message() + "\n";
    return text;
  }

  Cluster cluster_;
  const uint64_t count_;
  std::vector<std::vector<uint64_t>> rounds_;  // by agent and tensor
};

class WholeTensors : public testing::TestWithParam<bool> {
 protected:
  Layout layout(uint32_t agents, uint32_t shards, uint32_t ranks = 1) const {
    Layout layout{.agents = agents, .ranks_per_agent = ranks, .shards = shards};
    if (GetParam()) layout.transport = unreliable;
    return layout;
  }
};

// Expect: with agents that push one after the other, every step follows the formula, with norms
// over all 16 chunks. Rates come with gradients, and a rate of zero changes nothing.
TEST_P(WholeTensors, StepsFollowTheFormula) {
  for (const char* mode : {"ps:async,optimizer=lamb",
                           "ps:async,optimizer=lamb,beta1=0.5,beta2=0.7,"
                           "eps=0.001,weight_decay=0.1"}) {
    Job job(layout(3, 2, 2), mode);
    const Vector start = random_values(1);
    ASSERT_NO_FATAL_FAILURE(job.set(start));
    Lamb lamb(mode, start);
    Vector last = start;
    for (uint32_t number = 0; number < 12; ++number) {
      const uint32_t agent = number * 7 % 3;
      const double rate = number == 5 ? -0.0 : 0.1 / (1 + number);
      const Vector gradient = random_values(100 + number);
      job.push(agent, gradient, rate);
      const Vector now = job.result(agent);
      lamb.step(gradient, std::abs(rate));
      ASSERT_LT(lamb.distance(now), kRounding) << mode << " step " << number;
      if (number == 5) {
        ASSERT_EQ(now, last);
      }
      last = now;
    }
    job.pull(0);
    EXPECT_EQ(job.result(0), last);
  }
}

// Expect: a step is as long as the rate times the parameters of its tensor, for any scale of the
// gradient. With norms of chunks, each chunk would have moved by that part of itself.
TEST_P(WholeTensors, AStepsLengthIsOfTheWholeTensor) {
  Job job(layout(1, 3), "ps:async,optimizer=lamb", kCount, 2);
  Vector start(kCount, 1);
  std::fill_n(start.begin(), kChunk, 100.0F);
  for (const uint32_t tensor : {0U, 1U}) {
    job.push(0, start, 0, tensor);
    ASSERT_EQ(job.result(0, tensor), start);
    job.push(0, Vector(kCount, tensor == 0 ? 1e-3F : 1e3F), 0.01, tensor);
    const Vector now = job.result(0, tensor);
    const double norm = std::sqrt(kChunk * 1e4 + (kCount - kChunk));
    const double moved = 0.01 * norm / std::sqrt(kCount);
    for (uint64_t i = 0; i < kCount; ++i)
      ASSERT_NEAR(start[i] - now[i], moved, 1e-3 * moved) << "tensor " << tensor << " " << i;
  }
}

// ---- the modes. All parameters are 100 and all gradients are equal: the first step with rate r
// gives 100 (1 - r).

TEST_P(WholeTensors, AsyncTakesEveryPushOnce) {
  const char* mode = "ps:async,optimizer=lamb,lr=0.01";
  Job job(layout(3, 2), mode);
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  Lamb lamb(mode, Vector(kCount, 100));
  for (int step = 1; step <= 20; ++step) {
    for (uint32_t agent = 0; agent < 3; ++agent) job.push(agent, 1);
    for (uint32_t agent = 0; agent < 3; ++agent) job.result(agent);
    for (int push = 0; push < 3; ++push) lamb.step(Vector(kCount, 1), 0.01);
  }
  job.pull(1);
  EXPECT_LT(lamb.distance(job.result(1)), kRounding);
}

TEST_P(WholeTensors, SspWaitsForTheSlowest) {
  const char* mode = "ps:ssp,max_staleness=2,optimizer=lamb,lr=0.01";
  Job job(layout(2, 2), mode);
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  Lamb lamb(mode, Vector(kCount, 100));
  const auto push = [&](uint32_t agent) {
    job.push(agent, 1);
    lamb.step(Vector(kCount, 1), 0.01);
  };
  for (int step = 0; step < 2; ++step) {
    push(0);
    EXPECT_LT(lamb.distance(job.result(0)), kRounding);
  }
  push(0);
  EXPECT_FALSE(job.answered(0));
  push(1);
  EXPECT_LT(lamb.distance(job.result(0)), kRounding);
  EXPECT_LT(lamb.distance(job.result(1)), kRounding);
  job.pull(1);  // it is idle: no agent waits for it
  job.result(1);
  for (int step = 0; step < 4; ++step) {
    push(0);
    EXPECT_LT(lamb.distance(job.result(0)), kRounding);
  }
}

TEST_P(WholeTensors, QuorumStepsOnTheMeanOfTheFirst) {
  const char* mode = "ps:quorum,q=2,optimizer=lamb,lr=0.01";
  Job job(layout(3, 2), mode);
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  Lamb lamb(mode, Vector(kCount, 100));
  Vector first = random_values(3), second = random_values(4), both(kCount);
  for (uint64_t i = 0; i < kCount; ++i) both[i] = (first[i] + second[i]) / 2;
  job.push(0, first);
  EXPECT_FALSE(job.answered(0));
  job.push(1, second);
  lamb.step(both, 0.01);
  EXPECT_LT(lamb.distance(job.result(0)), kRounding);
  EXPECT_LT(lamb.distance(job.result(1)), kRounding);
  job.push(2, first);
  EXPECT_FALSE(job.answered(2));
  job.push(1, second);
  lamb.step(both, 0.01);
  EXPECT_LT(lamb.distance(job.result(2)), kRounding);
  EXPECT_LT(lamb.distance(job.result(1)), kRounding);
}

TEST_P(WholeTensors, QuorumHasADeadline) {
  ManualClock clock;
  Layout by_clock = layout(2, 1);
  by_clock.transport = [&] { return loopback_by(clock); };
  Job job(by_clock, "ps:quorum,q=2,deadline_ms=60000,optimizer=lamb,lr=0.01");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  job.push(1, 5);
  EXPECT_FALSE(job.answered(1)) << "no time has passed";
  clock.advance(60 * kSecond);
  EXPECT_THAT(job.result(1), Each(testing::FloatNear(99, 1e-3)));
}

// Expect: one element that is not finite leaves the whole tensor unchanged. The next gradient makes
// the first step.
TEST_P(WholeTensors, WhatIsNotFiniteMakesNoStepAtAll) {
  Job job(layout(2, 2), "ps:async,optimizer=lamb,lr=0.01");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  Vector gradient(kCount, 1);
  gradient[kCount - 1] = std::numeric_limits<float>::quiet_NaN();
  job.push(1, gradient);
  EXPECT_THAT(job.result(1), Each(100.0F));
  job.push(1, 1);
  EXPECT_THAT(job.result(1), Each(testing::FloatNear(99, 1e-3)));
}

INSTANTIATE_TEST_SUITE_P(Transport, WholeTensors, testing::Bool(), [](const auto& instance) {
  return instance.param ? "unreliable" : "loopback";
});

TEST(WholeTensors, OfNoAndOfOneElement) {
  for (const uint64_t count : {0U, 1U, 64U}) {
    Job job({.agents = 2, .shards = 2}, "ps:async,optimizer=lamb,lr=0.5", count);
    ASSERT_NO_FATAL_FAILURE(job.set(Vector(count, 8)));
    job.push(1, 3);
    EXPECT_THAT(job.result(1), Each(testing::FloatNear(4, 1e-4))) << count;
  }
}

// Expect: all chunks are on one shard. Of all tensors, and of every second and every third one,
// each shard has its part of the pattern, because layers alternate.
TEST(WholeTensors, LieOnOneShard) {
  CollectivePlan plan;
  plan.count = 100 * kChunk;
  plan.chunk_elements = kChunk;
  plan.shards = 3;
  plan.one_shard = true;
  for (const PlacementPattern& pattern :
       {PlacementPattern(), PlacementPattern(std::make_shared<const std::vector<uint16_t>>(
                                std::vector<uint16_t>{0, 2, 1, 2}))}) {
    plan.pattern = pattern;
    const double of_last = pattern == nullptr ? 1.0 / 3 : 0.5;
    for (const uint32_t every : {1U, 2U, 3U}) {
      for (uint32_t first = 1; first <= every; ++first) {
        uint32_t held[3] = {};
        for (uint32_t turn = 0; turn < 60; ++turn) {
          plan.tensor = first + every * turn;
          ++held[plan.shard_of(0)];
          for (uint32_t chunk = 1; chunk < plan.chunks(); ++chunk)
            ASSERT_EQ(plan.shard_of(chunk), plan.shard_of(0));
        }
        EXPECT_NEAR(held[2], 60 * of_last, 4) << "every " << every << " from " << first;
        EXPECT_NEAR(held[0], 30 * (1 - of_last), 4) << "every " << every << " from " << first;
      }
    }
  }
}

// ---- snapshots

// Expect: another number of shards continues from the snapshots of two shards, with the same steps.
TEST(WholeTensors, BeginFromSnapshots) {
  std::string directory =
      (std::filesystem::temp_directory_path() / "gradbus-whole-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  Layout layout{.agents = 1, .shards = 2};
  layout.keeper = std::make_shared<SnapshotKeeper>(directory, 0);
  const std::string mode = "ps:async,optimizer=lamb,lr=0.1,weight_decay=0.01";
  const Vector start = random_values(1);
  Lamb lamb(mode, start);
  {
    Job job(layout, mode);
    ASSERT_NO_FATAL_FAILURE(job.set(start));
    for (const uint32_t seed : {2U, 3U}) {
      job.push(0, random_values(seed));
      job.result(0);
      lamb.step(random_values(seed), 0.1);
    }
    job.cluster().end_job();
  }
  layout.shards = 3;
  layout.run = 2;
  {
    Job job(layout, mode + ",restore=1");
    job.push(0, 7);
    EXPECT_LT(lamb.distance(job.result(0)), kRounding);
    job.push(0, random_values(4));
    lamb.step(random_values(4), 0.1);
    EXPECT_LT(lamb.distance(job.result(0)), kRounding);
    job.cluster().end_job();
  }
  {
    layout.run = 3;
    Job job(layout, "ps:async,optimizer=adam,restore=1");
    job.push(0, 7);
    EXPECT_FALSE(job.answered(0)) << "adam goes on from what lamb remembers";
    job.cluster().end_job();
  }
  std::filesystem::remove_all(directory);
}

// ---- frames that a shard refuses: of two agents

class BadPushOfWhole : public testing::Test {
 protected:
  BadPushOfWhole() {
    plan_.collective.algorithm = Algorithm::kShards;
    plan_.collective.count = kCount;
    plan_.collective.chunk_elements = kChunk;
    plan_.collective.agents = 2;
    plan_.collective.shards = 2;
    plan_.collective.one_shard = true;
    plan_.name = "t";
    plan_.mode = parse_mode("ps:async,optimizer=lamb,lr=0.01").take();
    plan_.ranks = {1, 1};
    tensor_ = make_shard_tensor(plan_, *transport_).take();
    header_.kind = static_cast<uint8_t>(FrameKind::kReduce);
    header_.dtype = static_cast<uint8_t>(DType::kF32);
    header_.op = static_cast<uint8_t>(plan_.collective.op);
    header_.collective = static_cast<uint8_t>(CollectiveKind::kAllReduce);
    header_.step = 1;
    header_.total = kCount;
  }
  Status push(uint32_t agent, uint32_t chunk, float value = 1) {
    header_.chunk = chunk;
    const Vector values(std::min<uint64_t>(kChunk, kCount - std::min(kCount, chunk * kChunk)),
                        value);
    if (header_.length == 0) header_.length = static_cast<uint32_t>(values.size() * sizeof(float));
    answers_.clear();
    const Status status =
        tensor_->on_push(agent, header_, std::as_bytes(std::span(values)), 0, answers_);
    header_.length = 0;
    return status;
  }
  void refused(uint32_t agent, uint32_t chunk, const std::string& what) {
    const Status status = push(agent, chunk);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(answers_, SizeIs(0));
  }
  // All chunks of a push except the last, from the highest down. The caller pushes the last one.
  void all_but_one(uint32_t agent) {
    for (uint32_t chunk = kChunks - 1; chunk > 0; --chunk) {
      ASSERT_TRUE(push(agent, chunk).ok()) << chunk;
      ASSERT_THAT(answers_, SizeIs(0)) << chunk;
    }
  }
  void give_back() {
    for (const ShardAnswer& answer : std::vector<ShardAnswer>(answers_)) tensor_->on_sent(answer);
  }

  std::unique_ptr<Transport> transport_ = test::loopback();
  ShardPlan plan_;
  std::unique_ptr<ShardTensor> tensor_;
  FrameHeader header_;
  std::vector<ShardAnswer> answers_;
};

TEST_F(BadPushOfWhole, NamesWhatIsWrong) {
  refused(0, kChunks, "chunk is 16, expected less than 16");
  header_.length = 4;
  refused(0, 1, "length is 4, expected 256");
  header_.total = kCount - 1;
  refused(0, 0, "total is 999");
  header_.total = kCount;
  header_.step = 2;
  refused(0, 0, "step is 2, expected 1");
  header_.step = 1;
  ASSERT_TRUE(push(0, 3).ok());
  refused(0, 3, "has come already");
  header_.source = std::bit_cast<uint32_t>(0.5F);
  refused(0, 4, "source is");
}

// Expect: an answer contains all chunks in tensor order. A push that is repeated, or arrives before
// its answer was sent, is refused.
TEST_F(BadPushOfWhole, APushIsTakenOnceAndWhole) {
  ASSERT_NO_FATAL_FAILURE(all_but_one(0));
  ASSERT_TRUE(push(0, 0).ok());
  ASSERT_THAT(answers_, SizeIs(kChunks));
  uint64_t bytes = 0;
  for (const ShardAnswer& answer : answers_) {
    EXPECT_EQ(tensor_->frame(answer).chunk * kChunk * sizeof(float), bytes);
    EXPECT_EQ(tensor_->slice(answer).offset - tensor_->slice(answers_[0]).offset, bytes);
    EXPECT_EQ(tensor_->frame(answer).length, tensor_->slice(answer).bytes);
    bytes += answer.bytes;
  }
  EXPECT_EQ(bytes, kCount * sizeof(float));
  const std::vector<ShardAnswer> sent = answers_;
  header_.step = 2;
  for (uint32_t index = 0; index < kChunks; ++index) {
    EXPECT_TRUE(tensor_->must_wait(0, header_)) << index;
    tensor_->on_sent(sent[index]);
  }
  EXPECT_FALSE(tensor_->must_wait(0, header_));
  header_.step = 1;
  refused(0, 0, "step is 1, expected 2");
}

// Expect: if the chunks of two agents arrive mixed, the first complete push makes the first step.
// Neither contains chunks of the other.
TEST_F(BadPushOfWhole, AgentsDoNotMix) {
  for (const uint32_t agent : {0U, 1U}) {
    ASSERT_NO_FATAL_FAILURE(all_but_one(agent));
    ASSERT_TRUE(push(agent, 0).ok());
    give_back();
  }
  header_.step = 2;
  ASSERT_NO_FATAL_FAILURE(all_but_one(0));
  ASSERT_NO_FATAL_FAILURE(all_but_one(1));
  ASSERT_TRUE(push(1, 0).ok());
  ASSERT_THAT(answers_, SizeIs(kChunks));
  EXPECT_EQ(answers_[0].agent, 1u);
  EXPECT_EQ(answers_[0].staleness, 0u);
  EXPECT_EQ(tensor_->steps_of(0), 1u);
  ASSERT_TRUE(push(0, 0).ok());
  ASSERT_THAT(answers_, SizeIs(kChunks));
  EXPECT_EQ(answers_[0].agent, 0u);
  EXPECT_EQ(answers_[0].staleness, 1u);
  EXPECT_EQ(tensor_->steps_of(0), 2u);
}

}  // namespace
}  // namespace gradbus
