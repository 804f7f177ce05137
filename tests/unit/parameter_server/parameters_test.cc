// Tests compressed tensors whose parameters are on shards (modes ps:async, ps:ssp, ps:quorum), on
// real engines. The test computes an agent's expected parameters after each round itself, with
// codecs, their state and SGD's formula only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <random>

#include "compression/error_feedback.h"
#include "compression/random.h"
#include "data_plane/collectives/payload_push_pull.h"
#include "proto/placement.h"
#include "server/parameter_server/shard_tensor.h"
#include "tests/unit/data_plane/engine_cluster.h"
#include "transport/faulty/faulty.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

using test::Cluster;
using test::kJob;
using test::Layout;
using test::loopback_by;
using test::ManualClock;
using testing::AllOf;
using testing::Each;
using testing::HasSubstr;
using testing::SizeIs;
using Vector = std::vector<float>;

constexpr uint64_t kCount = 1000;
constexpr uint64_t kChunk = 64;
constexpr uint64_t kPartition = 256;

std::unique_ptr<Transport> unreliable() {
  static uint64_t seed = 500;
  return make_faulty(test::loopback(),
                     {.seed = ++seed, .busy = 0.3, .delay = 0.3, .reorder = true});
}

CompressionPlan compression_of(const std::string& spec) {
  CompressionPlan plan{parse_compression(spec).take(), Communicator::kPs, kPartition, 0};
  if (plan.spec.codec->traits.whole_partition) plan.partition_elements = 2 * kPartition;
  return plan;
}

// Engines of a layout with one tensor of kCount elements, whose ranks push and pull.
class Job {
 public:
  Job(const Layout& layout, const std::string& mode, const std::string& spec,
      ReduceOp op = ReduceOp::kAverage)
      : cluster_(layout), plan_(compression_of(spec)), rounds_(layout.agents) {
    TensorSpec tensor;
    tensor.name = "t";
    tensor.count = kCount;
    tensor.op = op;
    cluster_.add_compressed(0, tensor, kChunk, Algorithm::kShards, plan_, mode);
  }

  // `values` by element, for the node: each of its ranks brings them.
  void push(uint32_t agent, const Vector& values, double rate = 0) {
    Submission record = posted();
    record.learning_rate = rate;
    start(agent, values, record);
  }
  void push(uint32_t agent, float value, double rate = 0) {
    push(agent, Vector(kCount, value), rate);
  }
  void pull(uint32_t agent, float ignored = 1000) {
    Submission record = posted();
    record.ps_request = 1;
    start(agent, Vector(kCount, ignored), record);
  }
  void read_residual_state(uint32_t agent) {
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kReadResidualState);
    start(agent, Vector(kCount), record);
  }

  // The values of all ranks of the node after their round.
  Vector result(uint32_t agent) {
    for (uint32_t local = 0; local < ranks(); ++local)
      EXPECT_THAT(cluster_.completions(agent, local, 1), SizeIs(1)) << why();
    for (uint32_t local = 1; local < ranks(); ++local)
      EXPECT_EQ(rank_buffer(agent, local), rank_buffer(agent, 0));
    return rank_buffer(agent, 0);
  }
  bool answered(uint32_t agent) {
    cluster_.turn(300);
    CompletionRecord record;
    return cluster_.nodes[agent]->clients[0].completions.pop(record) == Pop::kRecord;
  }
  // The parameters of agent 0 become those of all.
  void set(const Vector& parameters) {
    for (uint32_t agent = 0; agent < rounds_.size(); ++agent)
      push(agent, agent == 0 ? parameters : Vector(kCount, -7));
    for (uint32_t agent = 0; agent < rounds_.size(); ++agent)
      ASSERT_EQ(result(agent), parameters) << "agent " << agent;
  }

  Vector rank_buffer(uint32_t agent, uint32_t local) {
    const float* data = cluster_.data(agent, local, 0);
    return {data, data + kCount};
  }
  uint32_t ranks() const { return cluster_.layout().ranks_per_agent; }
  const CompressionPlan& plan() const { return plan_; }
  Cluster& cluster() { return cluster_; }

 private:
  static Submission posted() {
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    return record;
  }
  void start(uint32_t agent, const Vector& values, const Submission& record) {
    ++rounds_[agent];
    for (uint32_t local = 0; local < ranks(); ++local) {
      std::ranges::copy(values, cluster_.data(agent, local, 0));
      cluster_.post(agent, local, 0, rounds_[agent], record);
    }
  }
  std::string why() {
    std::string text;
    for (auto& node : cluster_.nodes)
      for (const JobBroken& broken : node->broken.take()) text += broken.status.message() + "\n";
    return text;
  }

  Cluster cluster_;
  CompressionPlan plan_;
  std::vector<uint64_t> rounds_;  // by agent
};

// ---- comparison with a simulation

// One partition, its shard and its agents. Seeds as in data_plane/partition_plan.h.
class PartitionByHand {
 public:
  PartitionByHand(const CompressionPlan& plan, uint32_t index, const Layout& layout, Vector start)
      : index_(index), layout_(layout), parameters_(std::move(start)) {
    const size_t count = parameters_.size();
    for (uint32_t agent = 0; agent < layout.agents; ++agent)
      agents_.push_back({make_codec(plan.spec, {.count_max = count}),
                         ErrorFeedback(error_feedback_options(plan.spec, layout.agents), count),
                         parameters_, 1});
    shard_ = make_codec(plan.spec, {.count_max = count});
  }

  // The agent pushes the sum of its ranks' gradients. Returns its parameters afterwards.
  const Vector& step(uint32_t agent, const Vector& gradient, float rate) {
    Agent& from = agents_[agent];
    const uint64_t round = ++from.round;
    const uint64_t shared = mix_u64(mix_u64(mix_u64(kJob) + index_) + round);
    const auto input = from.memory.compensate(gradient, mix_u64(shared + 1 + agent), round);
    const auto up = encode(*from.codec, input);
    from.memory.update(*from.codec, up);
    Vector pushed(gradient.size());
    shard_->decode(up, 1, pushed);
    const float mean = 1.0F / static_cast<float>(layout_.ranks_per_agent);
    for (size_t i = 0; i < pushed.size(); ++i) parameters_[i] -= rate * (mean * pushed[i]);

    Vector lacks(pushed.size());
    for (size_t i = 0; i < lacks.size(); ++i) lacks[i] = parameters_[i] - from.view[i];
    const uint64_t shard = layout_.agents + shard_of(0, index_, layout_.shards, nullptr);
    const uint64_t seed = mix_u64(mix_u64(shared + 1 + shard) + agent);
    const auto down = encode(*shard_, {.gradient = lacks, .seed = seed, .round = round});
    if (down.size() < 4 * lacks.size()) {
      from.codec->accumulate(down, 1, from.view);
    } else {
      from.view = parameters_;
    }
    return from.view;
  }
  const Vector& pull(uint32_t agent) {
    ++agents_[agent].round;
    return agents_[agent].view = parameters_;
  }

 private:
  struct Agent {
    std::unique_ptr<Codec> codec;
    ErrorFeedback memory;
    Vector view;
    uint64_t round;
  };
  static std::vector<std::byte> encode(Codec& with, const EncodeInput& input) {
    std::vector<std::byte> payload(with.payload_bytes_max(input.count()));
    payload.resize(with.encode(input, payload));
    return payload;
  }

  const uint32_t index_;
  const Layout layout_;
  Vector parameters_;
  std::vector<Agent> agents_;
  std::unique_ptr<Codec> shard_;
};

class ByHand {
 public:
  ByHand(const CompressionPlan& plan, const Layout& layout, const Vector& start)
      : partition_(plan.partition_elements) {
    for (uint64_t first = 0; first < kCount; first += partition_)
      partitions_.emplace_back(plan, static_cast<uint32_t>(first / partition_), layout,
                               part(start, first));
  }
  Vector step(uint32_t agent, const Vector& gradient, float rate) {
    return join([&](PartitionByHand& partition, uint64_t first) -> const Vector& {
      return partition.step(agent, part(gradient, first), rate);
    });
  }
  Vector pull(uint32_t agent) {
    return join([&](PartitionByHand& partition, uint64_t) -> const Vector& {
      return partition.pull(agent);
    });
  }

 private:
  Vector part(const Vector& of, uint64_t first) const {
    const auto begin = of.begin() + static_cast<ptrdiff_t>(first);
    return {begin, begin + static_cast<ptrdiff_t>(std::min(partition_, kCount - first))};
  }
  template <typename Each>
  Vector join(const Each& each) {
    Vector all;
    for (size_t partition = 0; partition < partitions_.size(); ++partition) {
      const Vector& values = each(partitions_[partition], partition * partition_);
      all.insert(all.end(), values.begin(), values.end());
    }
    return all;
  }

  const uint64_t partition_;
  std::vector<PartitionByHand> partitions_;
};

// Rows of 8; four in five are zeros, so that `rows` has something to omit.
Vector random_gradient(std::mt19937& random) {
  std::normal_distribution<float> normal(0, 1);
  Vector values(kCount);
  for (uint64_t i = 0; i < kCount; ++i) values[i] = i / 8 % 5 == random() % 2 ? normal(random) : 0;
  return values;
}

Vector sum_of_ranks(const Vector& values, uint32_t ranks) {
  Vector sum = values;
  for (uint32_t rank = 1; rank < ranks; ++rank)
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += values[i];
  return sum;
}

std::vector<std::string> every_spec() {
  std::vector<std::string> specs = {"topk:ratio=0.05,values=fp16",
                                    "qsgd:entropy=zstd",
                                    "int8:rounding=stochastic",
                                    "int8:ef=residual",
                                    "dgc:ratio=0.05,ef=dgc,clip=1",
                                    "rows:dim=8",
                                    "threshold:value=0",
                                    "randk:ratio=0.5,scale=no"};
  for (const CodecRow* row : codec_rows())
    if (const auto spec = parse_compression(row->name).take(); !spec.none() && contracts(spec))
      if (row->make != nullptr && !row->traits.by_rows) specs.emplace_back(row->name);
  return specs;
}

class AsyncPsCodec : public testing::TestWithParam<std::string> {};

// Expect: after each round every agent has the bits of its simulated view, in any order of pushes
// and frames. After a pull it has the bits of the parameters.
TEST_P(AsyncPsCodec, AgentsHaveTheViewsThatShardsThinkTheyHave) {
  for (const bool faults : {false, true}) {
    Layout layout{.agents = 3, .ranks_per_agent = 2, .shards = 2};
    if (faults) layout.transport = unreliable;
    Job job(layout, "ps:async", GetParam());
    std::mt19937 random(7);
    const Vector start = random_gradient(random);
    ASSERT_NO_FATAL_FAILURE(job.set(start));
    ByHand by_hand(job.plan(), layout, start);
    for (int round = 1; round <= 24; ++round) {
      const uint32_t agent = random() % layout.agents;
      if (round % 7 == 0) {
        job.pull(agent);
        ASSERT_EQ(job.result(agent), by_hand.pull(agent)) << "round " << round;
        continue;
      }
      const Vector gradient = random_gradient(random);
      const float rate = round % 2 == 0 ? 0.25F : 0.1F;
      job.push(agent, gradient, rate);
      ASSERT_EQ(job.result(agent), by_hand.step(agent, sum_of_ranks(gradient, 2), rate))
          << "round " << round << " agent " << agent;
    }
    for (uint32_t agent = 0; agent < layout.agents; ++agent) job.pull(agent);
    for (uint32_t agent = 0; agent < layout.agents; ++agent)
      ASSERT_EQ(job.result(agent), by_hand.pull(agent));
  }
}

std::string name_of(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  for (char& c : name)
    if (std::isalnum(static_cast<unsigned char>(c)) == 0) c = '_';
  return name;
}

INSTANTIATE_TEST_SUITE_P(Registry, AsyncPsCodec, testing::ValuesIn(every_spec()), name_of);

// ---- nothing is lost

// With lr=1 the parameters change by what was sent. The change and the residuals add up to all
// gradients.
TEST(AsyncPs, StepsAndTheMemoryAddUpToTheGradients) {
  for (const char* spec : {"topk:ratio=0.05", "onebit", "int4"}) {
    Job job({.agents = 1, .shards = 2}, "ps:async,lr=1", spec);
    ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 0)));
    std::mt19937 random(3);
    std::vector<double> wanted(kCount);
    for (int round = 0; round < 6; ++round) {
      const Vector gradient = random_gradient(random);
      for (uint64_t i = 0; i < kCount; ++i) wanted[i] += gradient[i];
      job.push(0, gradient);
      job.result(0);
    }
    job.read_residual_state(0);
    const Vector kept = job.result(0);
    EXPECT_THAT(kept, testing::Not(Each(0.0F))) << spec;
    job.pull(0);
    const Vector parameters = job.result(0);
    for (uint64_t i = 0; i < kCount; ++i)
      ASSERT_NEAR(kept[i] - parameters[i], wanted[i], 1e-3) << spec << " element " << i;
  }
}

// Expect: changes of another agent arrive in pieces, a twentieth of the elements each time. They
// are exact and permanent, and the agent's own changes do not disturb them.
TEST(AsyncPs, RepeatedAnswersEndAtTheParameters) {
  Job job({.agents = 2, .shards = 1}, "ps:async,lr=1", "topk:ratio=0.05");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 0)));
  Vector moved(kCount);
  for (uint64_t i = 0; i < kCount; ++i) moved[i] = static_cast<float>(i % 512 + 1);
  for (int round = 0; round < 25; ++round) {  // until everything was sent
    job.push(0, round == 0 ? moved : Vector(kCount, 0));
    job.result(0);
  }
  const auto distance = [&](const Vector& view) {
    double sum = 0;
    for (uint64_t i = 0; i < kCount; ++i) sum += std::abs(view[i] + moved[i]);
    return sum;
  };
  double last = distance(Vector(kCount, 0));
  for (int round = 0; round < 25; ++round) {
    job.push(1, 0);
    const double now = distance(job.result(1));
    ASSERT_TRUE(now < last || now == 0) << "round " << round;
    if (round < 19) {
      ASSERT_GT(now, 0) << "round " << round;
    }
    last = now;
  }
  EXPECT_EQ(last, 0);
}

// ---- the modes, with integers that half floats represent

class HalfFloats : public testing::TestWithParam<bool> {
 protected:
  Layout layout(uint32_t agents, uint32_t shards) const {
    Layout layout{.agents = agents, .shards = shards};
    if (GetParam()) layout.transport = unreliable;
    return layout;
  }
};

TEST_P(HalfFloats, AsyncStepsOnEveryPush) {
  Job job(layout(3, 2), "ps:async,lr=1", "fp16");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  for (int step = 1; step <= 20; ++step) {
    for (uint32_t agent = 0; agent < 3; ++agent) job.push(agent, static_cast<float>(agent));
    for (uint32_t agent = 0; agent < 3; ++agent) job.result(agent);
  }
  job.push(0, 0);
  EXPECT_THAT(job.result(0), Each(100.0F - 20 * 3));
}

TEST_P(HalfFloats, SspWaitsForTheSlowest) {
  Job job(layout(2, 2), "ps:ssp,max_staleness=2,lr=1", "fp16");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  job.push(0, 1);
  EXPECT_THAT(job.result(0), Each(99.0F));
  job.push(0, 1);
  EXPECT_THAT(job.result(0), Each(98.0F));
  job.push(0, 1);
  EXPECT_FALSE(job.answered(0));
  job.push(1, 10);
  EXPECT_THAT(job.result(0), Each(87.0F));
  EXPECT_THAT(job.result(1), Each(87.0F));
  job.pull(1);  // it is idle: no agent waits for it
  EXPECT_THAT(job.result(1), Each(87.0F));
  for (const float expected : {86.0F, 85.0F, 84.0F, 83.0F}) {
    job.push(0, 1);
    EXPECT_THAT(job.result(0), Each(expected));
  }
}

// Expect: after a fence an agent is bounded by one that has made no step yet. Both agents count
// from the fence on, whoever was ahead before it.
TEST_P(HalfFloats, SspCountsFromTheFence) {
  Job job(layout(2, 2), "ps:ssp,max_staleness=2,lr=1", "fp16");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  float expected = 100;
  for (const uint32_t fast : {0, 1, 1}) {
    for (int step = 0; step < 2; ++step) {
      job.push(fast, 1);
      EXPECT_THAT(job.result(fast), Each(--expected));
    }
    job.push(fast, 1);
    EXPECT_FALSE(job.answered(fast)) << "agent " << fast << " is 3 steps ahead";
    job.push(1 - fast, 1);
    expected -= 2;
    for (const uint32_t agent : {fast, 1 - fast}) EXPECT_THAT(job.result(agent), Each(expected));
    for (const uint32_t agent : {0, 1, 1, 0}) {  // as flush() pulls
      job.pull(agent);
      EXPECT_THAT(job.result(agent), Each(expected));
    }
  }
}

TEST_P(HalfFloats, QuorumClosesWithTheFirst) {
  Job job(layout(3, 2), "ps:quorum,q=2,lr=1", "fp16");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  job.push(0, 2);
  EXPECT_FALSE(job.answered(0));
  job.push(1, 4);
  EXPECT_THAT(job.result(0), Each(97.0F));
  EXPECT_THAT(job.result(1), Each(97.0F));
  job.push(2, 8);
  EXPECT_FALSE(job.answered(2));
  job.push(1, 2);
  EXPECT_THAT(job.result(2), Each(92.0F));
  EXPECT_THAT(job.result(1), Each(92.0F));
}

TEST_P(HalfFloats, QuorumHasADeadline) {
  ManualClock clock;
  Layout by_clock = layout(2, 1);
  by_clock.transport = [&] { return loopback_by(clock); };
  Job job(by_clock, "ps:quorum,q=2,deadline_ms=60000,lr=1", "fp16");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
  job.push(1, 5);
  EXPECT_FALSE(job.answered(1)) << "no time has passed";
  clock.advance(60 * kSecond);
  EXPECT_THAT(job.result(1), Each(95.0F));
}

// Expect: no step. The next gradient makes one, on unchanged views.
TEST_P(HalfFloats, WhatIsNotFiniteMakesNoStep) {
  for (const char* spec : {"fp16", "topk:ratio=0.1", "onebit"}) {
    Job job(layout(2, 2), "ps:async,lr=1", spec);
    ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 100)));
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      Vector gradient(kCount, 0);
      for (uint64_t i = 0; i < kCount; i += 100) gradient[i] = bad;
      job.push(1, gradient);
      EXPECT_THAT(job.result(1), Each(100.0F)) << spec;
    }
    job.push(1, 0);
    EXPECT_THAT(job.result(1), Each(100.0F)) << spec;
  }
}

INSTANTIATE_TEST_SUITE_P(Transport, HalfFloats, testing::Bool(), [](const auto& instance) {
  return instance.param ? "unreliable" : "loopback";
});

// Expect: a difference that half floats cannot represent, 100,000, is sent dense, and so is the
// next.
TEST(AsyncPs, WhatTheCodecCannotCarryComesDense) {
  Job job({.agents = 2, .shards = 2}, "ps:async,lr=100", "fp16");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 1)));
  job.push(0, -1000);
  EXPECT_THAT(job.result(0), Each(100'001.0F));
  job.push(1, 0);
  EXPECT_THAT(job.result(1), Each(100'001.0F));
  job.push(1, 1);
  EXPECT_THAT(job.result(1), Each(99'901.0F));
}

// Expect: nan=stop checks gradients, but not the contents of the rank buffers when parameters are
// pulled.
TEST(AsyncPs, TheGateIsForGradients) {
  Job job({.agents = 2, .shards = 2}, "ps:async,lr=1", "fp16:nan=stop");
  ASSERT_NO_FATAL_FAILURE(job.set(Vector(kCount, 1)));
  job.pull(0, std::numeric_limits<float>::quiet_NaN());
  EXPECT_THAT(job.result(0), Each(1.0F));
  job.push(1, std::numeric_limits<float>::quiet_NaN());
  const auto broken = job.cluster().broken(1);
  ASSERT_THAT(broken, SizeIs(1));
  EXPECT_THAT(broken[0].status.message(), HasSubstr("GB-O901"));
}

// ---- snapshots

// Expect: another number of shards, and another compression, start from the snapshots of two
// shards.
TEST(AsyncPs, BeginFromSnapshots) {
  std::string directory =
      (std::filesystem::temp_directory_path() / "gradbus-parameters-XXXXXX").string();
  ASSERT_NE(mkdtemp(directory.data()), nullptr);
  Layout layout{.agents = 2, .shards = 2};
  layout.keeper = std::make_shared<SnapshotKeeper>(directory, 0);
  Vector start(kCount);
  for (uint64_t i = 0; i < kCount; ++i) start[i] = static_cast<float>(i);
  {
    Job job(layout, "ps:async,lr=1,momentum=0.5", "fp16");
    ASSERT_NO_FATAL_FAILURE(job.set(start));
    job.push(1, 8);
    job.result(1);
    job.cluster().end_job();
  }
  layout.shards = 3;
  layout.run = 2;
  {
    Job job(layout, "ps:async,lr=1,momentum=0.5,restore=1", "bf16");
    job.push(1, -7);
    const Vector restored = job.result(1);
    for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(restored[i], start[i] - 8) << i;
    job.push(1, 0);  // the momentum was restored, too: 4
    job.result(1);
    job.pull(1);
    const Vector stepped = job.result(1);
    for (uint64_t i = 0; i < kCount; ++i) ASSERT_EQ(stepped[i], start[i] - 12) << i;
    job.cluster().end_job();
  }
  std::filesystem::remove_all(directory);
}

// ---- frames that a shard refuses: of two agents, in units of 256 of 1000 elements

class BadPush : public testing::Test {
 protected:
  BadPush() {
    plan_.collective.count = kCount;
    plan_.collective.agents = 2;
    plan_.collective.shards = 2;
    plan_.name = "t";
    plan_.mode = parse_mode("ps:async").take();
    plan_.ranks = {1, 1};
    plan_.compression = compression_of("onebit");
    tensor_ = make_shard_tensor(plan_, *transport_).take();
    header_.kind = static_cast<uint8_t>(FrameKind::kReduce);
    header_.codec = static_cast<uint8_t>(CodecId::kDense);
    header_.dtype = static_cast<uint8_t>(DType::kU8);
    header_.op = static_cast<uint8_t>(ReduceOp::kNone);
    header_.collective = static_cast<uint8_t>(CollectiveKind::kGather);
    header_.step = 1;
  }

  Status push(uint32_t agent, std::span<const std::byte> payload) {
    header_.length = static_cast<uint32_t>(payload.size());
    header_.total = payload.size();
    answers_.clear();
    return tensor_->on_push(agent, header_, payload, 0, answers_);
  }
  void refused(uint32_t agent, std::span<const std::byte> payload, const std::string& what) {
    const Status status = push(agent, payload);
    EXPECT_EQ(status.code(), Code::kCorrupt);
    EXPECT_THAT(status.message(), HasSubstr(what));
    EXPECT_THAT(answers_, SizeIs(0));
  }
  void set() {
    ASSERT_TRUE(push(0, std::as_bytes(std::span(values_))).ok());
    ASSERT_THAT(answers_, SizeIs(1));
    tensor_->on_sent(answers_[0]);
    ASSERT_TRUE(push(1, {}).ok());
    ASSERT_THAT(answers_, SizeIs(1));
    EXPECT_EQ(tensor_->frame(answers_[0]).codec, static_cast<uint8_t>(CodecId::kDense));
    EXPECT_EQ(tensor_->frame(answers_[0]).total, kPartition * sizeof(float));
    tensor_->on_sent(answers_[0]);
    header_.step = 2;
    header_.codec = static_cast<uint8_t>(CodecId::kOneBit);
  }
  std::vector<std::byte> payload() {
    const auto codec = make_codec(plan_.compression.spec, {.count_max = kPartition});
    std::vector<std::byte> bytes(codec->payload_bytes_max(kPartition));
    bytes.resize(codec->encode({.gradient = values_}, bytes));
    return bytes;
  }

  std::unique_ptr<Transport> transport_ = test::loopback();
  ShardPlan plan_;
  std::unique_ptr<ShardTensor> tensor_;
  FrameHeader header_;
  Vector values_ = Vector(kPartition, 1.5F);
  std::vector<ShardAnswer> answers_;
};

TEST_F(BadPush, OfTheFirstRound) {
  const auto elements = std::as_bytes(std::span(values_));
  refused(0, elements.first(1020), "total is 1020, expected 1024");
  refused(0, {}, "total is 0, expected 1024");
  refused(1, elements, "total is 1024, expected 0");
  header_.codec = static_cast<uint8_t>(CodecId::kOneBit);
  refused(0, payload(), "codec is");
  header_.codec = static_cast<uint8_t>(CodecId::kFp16);
  refused(0, elements, "codec is 1, expected");
  header_.codec = static_cast<uint8_t>(CodecId::kDense);
  ASSERT_NO_FATAL_FAILURE(set());
}

TEST_F(BadPush, OfLaterRounds) {
  ASSERT_NO_FATAL_FAILURE(set());
  std::vector<std::byte> good = payload();
  refused(1, std::as_bytes(std::span(values_)), "expected less than");
  header_.source = kPullOnly;
  refused(1, good, "expected 0");
  header_.source = 0;
  header_.codec = static_cast<uint8_t>(CodecId::kDense);
  refused(1, good, "codec is 0");
  header_.codec = static_cast<uint8_t>(CodecId::kOneBit);
  header_.step = 3;
  refused(1, good, "step is 3, expected 2");
  header_.step = 2;
  EXPECT_TRUE(push(1, good).ok());
  ASSERT_THAT(answers_, SizeIs(1));
  EXPECT_EQ(tensor_->frame(answers_[0]).codec, static_cast<uint8_t>(CodecId::kOneBit));
  header_.step = 3;
  EXPECT_TRUE(tensor_->must_wait(1, header_));
  tensor_->on_sent(answers_[0]);
  EXPECT_FALSE(tensor_->must_wait(1, header_));
  good[0] = std::byte{99};
  header_.step = 2;
  refused(0, good, "GB-D611");
}

TEST_F(BadPush, OfWhatIsKept) {
  ASSERT_NO_FATAL_FAILURE(set());
  const auto elements = std::as_bytes(std::span(values_));
  header_.source = kReadOptimizerState + 1;
  refused(0, payload(), "expected 0");
  header_.source = kReadOptimizerState + 2;
  refused(0, {}, "a part that is not kept");
  header_.source = kWriteOptimizerState + 1;
  refused(0, elements, "codec is");
  header_.codec = static_cast<uint8_t>(CodecId::kDense);
  refused(0, elements.first(1020), "total is 1020, expected 1024");
  refused(1, elements, "total is 1024, expected 0");
  EXPECT_TRUE(push(0, elements).ok());
  EXPECT_THAT(answers_, SizeIs(1));
}

// ---- frames of a shard that an agent refuses

class BadAnswer : public testing::Test {
 protected:
  BadAnswer() {
    plan_.spec = parse_compression("onebit").take();
    plan_.communicator = Communicator::kPs;
    plan_.count = plan_.shape.count_max = rank_buffer_.size();
    plan_.agent_index = 1;
    plan_.shards = 2;
    plan_.parameters = true;
    plan_.rank_buffers = {rank_buffer_.data()};
    partition_ = make_partition(plan_);
    const Stage& stage = partition_->stages().front();
    memory_.resize(stage.bytes);
    exchange_ = std::make_unique<CollectiveOperation>(
        OperationId{0, 0}, stage.plan, OperationBuffers{{}, 0, memory_.data(), stage.stride},
        std::vector<uint32_t>(), Reduction());
    partition_->attach(0, exchange_.get(), memory_);
  }
  Status answer(bool dense, std::span<const std::byte> bytes) {
    Action deliver{.kind = Action::Kind::kDeliver, .dense = dense};
    deliver.source = PayloadPushPull::kAnswerBlock;
    deliver.bytes = deliver.total = bytes.size();
    exchange_->deliver(deliver, bytes);
    return partition_->advance(0).status();
  }

  Vector rank_buffer_ = Vector(100, 7);
  PartitionPlan plan_;
  std::unique_ptr<CompressedPartition> partition_;
  std::vector<std::byte> memory_;
  std::unique_ptr<CollectiveOperation> exchange_;
};

// Expect: refused before the first write, and the error names the shard. Then a valid answer is
// accepted.
TEST_F(BadAnswer, NamesItsShard) {
  partition_->start(1);
  const Vector parameters(100, 3), before = rank_buffer_;
  const auto bytes = std::as_bytes(std::span(parameters));
  EXPECT_THAT(answer(true, bytes.first(396)).message(),
              AllOf(HasSubstr("GB-D611"), HasSubstr("shard 0"), HasSubstr("expected 400")));
  EXPECT_THAT(answer(false, bytes.first(60)).message(),
              AllOf(HasSubstr("GB-D611"), HasSubstr("shard 0")));
  EXPECT_EQ(rank_buffer_, before);
  EXPECT_TRUE(answer(true, bytes).ok());
  EXPECT_EQ(rank_buffer_, parameters);
}

// Expect: the state is sent as elements, and the agent does not use it as parameters.
TEST_F(BadAnswer, ToWhatIsKept) {
  const Vector parameters(100, 3), kept(100, 5);
  partition_->start(1);
  EXPECT_TRUE(answer(true, std::as_bytes(std::span(parameters))).ok());
  partition_->start(2, PsRequest::kRead);
  const auto codec = make_codec(plan_.spec, plan_.shape);
  std::vector<std::byte> payload(codec->payload_bytes_max(100));
  payload.resize(codec->encode({.gradient = kept}, payload));
  EXPECT_THAT(answer(false, payload).message(), AllOf(HasSubstr("GB-D611"), HasSubstr("shard 0")));
  EXPECT_EQ(rank_buffer_, parameters);
  EXPECT_TRUE(answer(true, std::as_bytes(std::span(kept))).ok());
  EXPECT_EQ(rank_buffer_, kept);
  partition_->start(3);
  EXPECT_TRUE(answer(false, payload).ok());
  EXPECT_EQ(rank_buffer_, Vector(100, 8)) << "5 more than the parameters";
}

// Expect: all frames of one answer are elements, or all belong to a payload.
TEST_F(BadAnswer, IsOfOneKind) {
  const auto collective = make_collective(partition_->stages().front().plan);
  std::vector<Action> actions;
  const uint64_t nothing[] = {0, 0};
  collective->begin(1, nothing, actions);
  EXPECT_TRUE(actions.at(0).dense);
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kGather);
  header.codec = static_cast<uint8_t>(CodecId::kFp16);
  header.dtype = static_cast<uint8_t>(DType::kU8);
  header.op = static_cast<uint8_t>(ReduceOp::kNone);
  header.collective = static_cast<uint8_t>(CollectiveKind::kGather);
  header.step = 1;
  header.total = header.length = 400;
  EXPECT_THAT(collective->on_frame(2, header, 0, actions).message(), HasSubstr("codec is 1"));
  header.codec = static_cast<uint8_t>(CodecId::kDense);
  EXPECT_TRUE(collective->on_frame(2, header, 0, actions).ok());
}

}  // namespace
}  // namespace gradbus
