// Engines of several nodes that exchange one compressed tensor of kClusterCount elements.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "tests/unit/data_plane/engine_cluster.h"

namespace gradbus::test {

inline constexpr uint64_t kClusterCount = 1000;
inline constexpr uint64_t kChunk = 64;
inline constexpr uint64_t kPartition = 256;  // 4 partitions, the last one is shorter

struct CompressedCase {
  std::string spec;
  Communicator communicator = Communicator::kAllGather;
};

inline void PrintTo(const CompressedCase& one, std::ostream* out) {
  *out << one.spec << " " << communicator_name(one.communicator);
}

class CompressedCluster {
 public:
  CompressedCluster(const Layout& layout, const CompressedCase& what, ReduceOp op = ReduceOp::kSum)
      : cluster_(layout), rounds_(layout.agents) {
    TensorSpec spec;
    spec.count = kClusterCount;
    spec.op = op;
    CompressionPlan plan;
    plan.spec = parse_compression(what.spec).take();
    plan.communicator = what.communicator;
    const CodecTraits& traits = plan.spec.codec->traits;
    const bool whole = traits.whole_partition || traits.needs_matrix;
    plan.partition_elements = whole ? kClusterCount : kPartition;
    if (traits.needs_matrix) plan.columns = 25;
    plan_ = plan;
    cluster_.add_compressed(0, spec, kChunk, Algorithm::kRing, plan);
  }

  // Each rank's gradient of this round; equal for equal seeds.
  static std::vector<float> gradient(uint32_t rank, uint64_t round) {
    std::mt19937 random(static_cast<uint32_t>(rank * 1000 + round));
    std::normal_distribution<float> normal(0, 1);
    std::vector<float> values(kClusterCount);
    for (float& value : values) value = normal(random);
    return values;
  }

  void run_round(uint64_t round) {
    for_each_rank([&](uint32_t agent, uint32_t local) {
      put(agent, local, gradient(ranks(agent)[local], round));
    });
    ASSERT_NO_FATAL_FAILURE(start(posted()));
    ASSERT_NO_FATAL_FAILURE(finish());
  }

  // ---- the parts of run_round(), for rounds of other kinds; for all agents or one of them
  static Submission posted(double residual_scale = 0) {
    Submission record{};
    record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
    record.residual_scale = residual_scale;
    return record;
  }
  static Submission memory(SubmissionKind kind,
                           ResidualStatePart part = ResidualStatePart::kResidual) {
    Submission record{};
    record.kind = static_cast<uint32_t>(kind);
    record.residual_state_part = static_cast<uint64_t>(part);
    return record;
  }
  void put(uint32_t agent, uint32_t local, const std::vector<float>& values) {
    std::memcpy(cluster_.data(agent, local, 0), values.data(), kClusterCount * sizeof(float));
  }
  void start(const Submission& record) {
    for (uint32_t agent = 0; agent < agents(); ++agent) start(agent, record);
  }
  void start(uint32_t agent, const Submission& record) {
    ++rounds_[agent];
    for (uint32_t local = 0; local < ranks(agent).size(); ++local)
      cluster_.post(agent, local, 0, rounds_[agent], record);
  }
  void finish() {
    for (uint32_t agent = 0; agent < agents(); ++agent) finish(agent);
  }
  void finish(uint32_t agent) {
    for (uint32_t local = 0; local < ranks(agent).size(); ++local)
      ASSERT_EQ(cluster_.completions(agent, local, 1).size(), 1u) << why();
    cluster_.nodes[agent]->settle();
  }
  // The sum of all ranks' buffers.
  std::vector<double> total() {
    std::vector<double> sum(kClusterCount);
    for_each_rank([&](uint32_t agent, uint32_t local) {
      for (uint64_t i = 0; i < kClusterCount; ++i) sum[i] += cluster_.data(agent, local, 0)[i];
    });
    return sum;
  }
  template <typename Visit>
  void for_each_rank(const Visit& visit) {
    for (uint32_t agent = 0; agent < agents(); ++agent)
      for (uint32_t local = 0; local < ranks(agent).size(); ++local) visit(agent, local);
  }

  std::vector<float> result(uint32_t agent, uint32_t local) {
    const float* data = cluster_.data(agent, local, 0);
    return {data, data + kClusterCount};
  }

  void expect_same_bits_everywhere() {
    const std::vector<float> first = result(0, 0);
    for (uint32_t agent = 0; agent < agents(); ++agent)
      for (uint32_t local = 0; local < ranks(agent).size(); ++local)
        ASSERT_EQ(std::memcmp(result(agent, local).data(), first.data(), kClusterCount * 4), 0)
            << "agent " << agent << " local rank " << local;
  }

  uint32_t world() const { return cluster_.layout().world(); }
  uint32_t agents() const { return cluster_.layout().agents; }
  const CompressionPlan& plan() const { return plan_; }
  Cluster& cluster() { return cluster_; }

 private:
  const std::vector<uint32_t>& ranks(uint32_t agent) { return cluster_.nodes[agent]->ranks; }
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

}  // namespace gradbus::test
