// Tests compressed tensors in mode ps:sync on real engines. Agents push payloads; shards sum them
// and encode the sum again. The test computes the expected result itself, in the order of the
// agents, with codecs and their state only.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "compression/error_feedback.h"
#include "compression/random.h"
#include "proto/placement.h"
#include "tests/unit/data_plane/compressed_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::CompressedCase;
using test::CompressedCluster;
using test::kClusterCount;
using test::Layout;
using testing::SizeIs;

std::unique_ptr<Transport> unreliable() {
  static uint64_t seed = 100;
  return make_faulty(test::loopback(),
                     {.seed = ++seed, .busy = 0.3, .delay = 0.3, .reorder = true});
}

// One partition: an encoder per agent, and one for the shard. Seeds as in
// data_plane/partition_plan.h.
class PartitionByHand {
 public:
  PartitionByHand(const CompressionSpec& spec, uint32_t index, size_t count, const Layout& layout)
      : index_(index), count_(count), votes_(spec.codec->traits.votes), layout_(layout) {
    for (uint32_t agent = 0; agent < layout.agents; ++agent)
      agents_.push_back(encoder(*spec.codec, error_feedback_options(spec, layout.agents), spec));
    ErrorFeedbackOptions options = error_feedback_options(spec, layout.agents);
    if (options.kind == ErrorFeedbackKind::kDgc) options.kind = ErrorFeedbackKind::kResidual;
    const CodecRow* owner = spec.codec->owner.empty() ? spec.codec : find_codec(spec.codec->owner);
    shard_ = std::make_unique<Encoder>(encoder(*owner, options, spec));
  }

  // `gradients` by agent. Returns the mean over `divisor`.
  std::vector<float> round(const std::vector<std::vector<float>>& gradients, uint64_t round,
                           float residual_scale, float divisor) {
    const uint64_t shared = mix_u64(mix_u64(mix_u64(test::kJob) + index_) + round);
    std::vector<float> sum(count_);
    for (uint32_t agent = 0; agent < agents_.size(); ++agent) {
      agents_[agent].memory.rescale(residual_scale);
      const auto payload =
          encode(agents_[agent], gradients[agent], mix_u64(shared + 1 + agent), round);
      if (agent == 0) {
        agents_[agent].codec->decode(payload, 1, sum);
      } else {
        agents_[agent].codec->accumulate(payload, 1, sum);
      }
    }
    shard_->memory.rescale(residual_scale);
    const uint64_t peer = layout_.agents + shard_of(0, index_, layout_.shards, layout_.pattern);
    const auto payload = encode(*shard_, sum, mix_u64(mix_u64(shared + 1 + peer)), round);
    // An average of votes is their majority, plus or minus the step of each.
    shard_->codec->decode(payload, votes_ ? 1 : 1 / divisor, sum);
    return sum;
  }

 private:
  struct Encoder {
    std::unique_ptr<Codec> codec;
    ErrorFeedback memory;
  };
  Encoder encoder(const CodecRow& row, const ErrorFeedbackOptions& options,
                  const CompressionSpec& spec) {
    return {make_codec(row, spec.options, {.count_max = count_}), ErrorFeedback(options, count_)};
  }
  std::vector<std::byte> encode(Encoder& with, const std::vector<float>& values, uint64_t seed,
                                uint64_t round) {
    std::vector<std::byte> payload(with.codec->payload_bytes_max(count_));
    payload.resize(with.codec->encode(with.memory.compensate(values, seed, round), payload));
    with.memory.update(*with.codec, payload);
    return payload;
  }

  const uint32_t index_;
  const size_t count_;
  const bool votes_;
  const Layout layout_;
  std::vector<Encoder> agents_;
  std::unique_ptr<Encoder> shard_;
};

// All partitions; the gradients are those of CompressedCluster.
class ByHand {
 public:
  ByHand(const CompressedCluster& cluster, const Layout& layout) : layout_(layout) {
    partition_ = cluster.plan().partition_elements;
    for (uint64_t first = 0; first < kClusterCount; first += partition_)
      partitions_.emplace_back(cluster.plan().spec, static_cast<uint32_t>(first / partition_),
                               std::min(partition_, kClusterCount - first), layout);
  }

  std::vector<float> round(uint64_t round, float residual_scale, float divisor) {
    std::vector<std::vector<float>> nodes(layout_.agents, std::vector<float>(kClusterCount));
    for (uint32_t rank = 0; rank < layout_.world(); ++rank) {
      const std::vector<float> gradient = CompressedCluster::gradient(rank, round);
      for (uint64_t i = 0; i < kClusterCount; ++i) nodes[layout_.agent_of(rank)][i] += gradient[i];
    }
    std::vector<float> result;
    for (size_t partition = 0; partition < partitions_.size(); ++partition) {
      std::vector<std::vector<float>> parts;
      for (const std::vector<float>& node : nodes) {
        const auto from = node.begin() + static_cast<ptrdiff_t>(partition * partition_);
        const auto left = static_cast<uint64_t>(node.end() - from);
        parts.emplace_back(from, from + static_cast<ptrdiff_t>(std::min(partition_, left)));
      }
      const std::vector<float> sum =
          partitions_[partition].round(parts, round, residual_scale, divisor);
      result.insert(result.end(), sum.begin(), sum.end());
    }
    return result;
  }

 private:
  const Layout layout_;
  uint64_t partition_ = 0;
  std::vector<PartitionByHand> partitions_;
};

struct PsSyncCase {
  std::string spec;
  Layout layout;
};

void PrintTo(const PsSyncCase& pushed, std::ostream* out) {
  *out << pushed.spec << " of " << pushed.layout.agents << " agents";
}

std::vector<PsSyncCase> every_case() {
  std::vector<PsSyncCase> cases;
  for (const CodecRow* row : codec_rows()) {
    if (row->id == CodecId::kDense || row->make == nullptr) continue;
    cases.push_back({std::string(row->name), {.agents = 3, .ranks_per_agent = 2, .shards = 2}});
  }
  cases.push_back({"onebit", {.agents = 1, .ranks_per_agent = 2, .shards = 1}});
  cases.push_back({"int8:ef=residual", {.agents = 5, .shards = 3}});
  cases.push_back({"qsgd:entropy=zstd", {.agents = 2, .shards = 5}});
  return cases;
}

class PsSyncCodec : public testing::TestWithParam<PsSyncCase> {};

// Expect: the bits of two-way compression on every rank, in every round. That includes scaled state
// and any order of arrival.
TEST_P(PsSyncCodec, GivesWhatTwoWayCompressionGives) {
  for (const bool faults : {false, true}) {
    Layout layout = GetParam().layout;
    if (faults) layout.transport = unreliable;
    CompressedCluster cluster(layout, {GetParam().spec, Communicator::kPs}, ReduceOp::kAverage);
    ByHand by_hand(cluster, layout);
    for (uint64_t round = 1; round <= 4; ++round) {
      const float scale = round == 3 ? 0.5F : 1;
      cluster.for_each_rank([&](uint32_t agent, uint32_t local) {
        const uint32_t rank = cluster.cluster().nodes[agent]->ranks[local];
        cluster.put(agent, local, CompressedCluster::gradient(rank, round));
      });
      cluster.start(CompressedCluster::posted(scale));
      ASSERT_NO_FATAL_FAILURE(cluster.finish());
      ASSERT_NO_FATAL_FAILURE(cluster.expect_same_bits_everywhere());
      const auto world = static_cast<float>(cluster.world());
      ASSERT_EQ(cluster.result(0, 0), by_hand.round(round, scale, world)) << "round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, PsSyncCodec, testing::ValuesIn(every_case()),
                         [](const auto& instance) {
                           const std::string& spec = instance.param.spec;
                           return spec.substr(0, spec.find(':')) + "_" +
                                  std::to_string(instance.param.layout.agents) + "_agents";
                         });

struct CountingCase {
  uint32_t agents;
  uint32_t shards;
  uint64_t count;
  uint64_t partition;
};

void PrintTo(const CountingCase& c, std::ostream* out) {
  *out << c.agents << " agents " << c.shards << " shards " << c.count << " elements";
}

class Counting : public testing::TestWithParam<CountingCase> {};

float counted(uint32_t agent, uint64_t i, uint64_t round) {
  return static_cast<float>(agent * 16 + i % 131 + round);
}

// Expect: integers that half floats represent are summed exactly, also in payloads of several
// frames.
TEST_P(Counting, TheMeanIsExact) {
  const CountingCase c = GetParam();
  test::Cluster cluster({.agents = c.agents, .shards = c.shards, .transport = unreliable});
  TensorSpec spec;
  spec.count = c.count;
  const CompressionPlan plan{parse_compression("fp16").take(), Communicator::kPs, c.partition, 0};
  cluster.add_compressed(0, spec, 1 << 14, Algorithm::kShards, plan);
  for (uint64_t round = 1; round <= 3; ++round) {
    for (uint32_t agent = 0; agent < c.agents; ++agent) {
      for (uint64_t i = 0; i < c.count; ++i)
        cluster.data(agent, 0, 0)[i] = counted(agent, i, round);
      cluster.post(agent, 0, 0, round);
    }
    for (uint32_t agent = 0; agent < c.agents; ++agent) {
      ASSERT_THAT(cluster.completions(agent, 0, 1), SizeIs(1)) << "round " << round;
      for (uint64_t i = 0; i < c.count; ++i) {
        float sum = 0;
        for (uint32_t from = 0; from < c.agents; ++from) sum += counted(from, i, round);
        ASSERT_EQ(cluster.data(agent, 0, 0)[i], sum) << "element " << i;
      }
    }
  }
}

// 1 << 14 elements are a chunk; 327,680 as half floats are 3 frames.
INSTANTIATE_TEST_SUITE_P(Shapes, Counting,
                         testing::Values(CountingCase{1, 1, 1, 1 << 14},
                                         CountingCase{2, 3, 100'001, 1 << 14},
                                         CountingCase{4, 2, 700'001, 327'680},
                                         CountingCase{2, 1, 700'001, 1 << 20}));

// Expect: a NaN reaches every rank. It spoils its own round only.
TEST(PsSync, WhatIsNotFiniteIsSeenByAll) {
  const Layout layout{.agents = 2, .shards = 2};
  CompressedCluster cluster(layout, {"onebit", Communicator::kPs});
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(1));
  cluster.for_each_rank([&](uint32_t agent, uint32_t local) {
    std::vector<float> values(kClusterCount, 1);
    if (agent == 1) values[300] = std::numeric_limits<float>::quiet_NaN();
    cluster.put(agent, local, values);
  });
  cluster.start(CompressedCluster::posted());
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  for (uint32_t agent = 0; agent < 2; ++agent) {
    const std::vector<float> result = cluster.result(agent, 0);
    EXPECT_TRUE(std::ranges::any_of(result, [](float value) { return !std::isfinite(value); }));
  }
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(3));
  for (const float value : cluster.result(0, 0)) ASSERT_TRUE(std::isfinite(value));
}

// Expect: the gauge compares with a dense sum that goes from agent to agent.
TEST(PsSync, TheirFidelityIsMeasured) {
  CompressedCluster cluster({.agents = 3, .shards = 2}, {"int8:fidelity=1", Communicator::kPs});
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(1));
  const auto samples = cluster.cluster().nodes[0]->fidelity->take();
  ASSERT_THAT(samples, SizeIs(1));
  EXPECT_GT(samples.at(0).cosine, 0.99);
  EXPECT_LT(samples.at(0).relative_error, 0.1);
}

// Expect: a push that arrives before the shard knows the tensor is applied later.
TEST(PsSync, MayComeBeforeTheTensor) {
  test::Cluster cluster({.agents = 2, .shards = 1});
  TensorSpec spec;
  spec.count = 1000;
  const CompressionPlan plan{parse_compression("fp16").take(), Communicator::kPs, 256, 0};
  for (uint32_t agent = 0; agent < 2; ++agent) {
    cluster.add_tensor(*cluster.nodes[agent], 0, spec, 64, Algorithm::kShards, plan);
    for (uint64_t i = 0; i < spec.count; ++i) cluster.data(agent, 0, 0)[i] = counted(agent, i, 1);
    cluster.post(agent, 0, 0, 1);
  }
  cluster.turn(200);
  cluster.add_to_shard(0, 0, spec, 64, "ps:sync", plan);
  for (uint32_t agent = 0; agent < 2; ++agent) {
    ASSERT_THAT(cluster.completions(agent, 0, 1), SizeIs(1));
    EXPECT_EQ(cluster.data(agent, 0, 0)[999], counted(0, 999, 1) + counted(1, 999, 1));
  }
}

}  // namespace
}  // namespace gradbus
