// Tests compressed tensors on real engines and local reductions: every codec with every
// communicator that it supports. The transport is reliable, or it delays, reorders and refuses.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "compression/registry.h"
#include "tests/unit/data_plane/compressed_cluster.h"
#include "transport/faulty/faulty.h"

namespace gradbus {
namespace {

using test::CompressedCase;
using test::CompressedCluster;
using test::kClusterCount;

std::vector<CompressedCase> every_case() {
  std::vector<CompressedCase> cases;
  for (const CodecRow* row : codec_rows()) {
    if (row->id == CodecId::kDense) continue;
    // With 1 in 100 elements and no residual, 12 rounds show too little.
    const std::string name =
        row->id == CodecId::kRandK ? "randk:ratio=0.2" : std::string(row->name);
    if (row->make != nullptr) cases.push_back({name, Communicator::kAllGather});
    if (row->make != nullptr) cases.push_back({name, Communicator::kPs});
    const CompressionSpec spec = parse_compression(name).take();
    if (is_linear(spec) || is_mergeable(spec)) cases.push_back({name, Communicator::kAllReduce});
  }
  return cases;
}

class EveryCodec : public testing::TestWithParam<CompressedCase> {};

TEST_P(EveryCodec, AllRanksGetTheSameBitsRoundAfterRound) {
  CompressedCluster cluster({.agents = 3, .ranks_per_agent = 2}, GetParam());
  for (uint64_t round = 1; round <= 4; ++round) {
    ASSERT_NO_FATAL_FAILURE(cluster.run_round(round));
    ASSERT_NO_FATAL_FAILURE(cluster.expect_same_bits_everywhere());
    for (const float value : cluster.result(0, 0)) ASSERT_TRUE(std::isfinite(value));
  }
}

// The sum of results must have the direction of the sum of gradients, so nothing was mixed up. A
// sign alone keeps 0.8 of the direction of a normal vector. The limit 0.1 is far from chance (0.03
// for 1,000 elements). It is low enough for codecs that send a hundredth of the elements and return
// the rest over the rounds.
TEST_P(EveryCodec, ResultsFollowTheGradients) {
  CompressedCluster cluster({.agents = 2, .ranks_per_agent = 1}, GetParam());
  std::vector<double> results(kClusterCount);
  std::vector<double> gradients(kClusterCount);
  for (uint64_t round = 1; round <= 12; ++round) {
    ASSERT_NO_FATAL_FAILURE(cluster.run_round(round));
    const std::vector<float> result = cluster.result(0, 0);
    for (uint64_t i = 0; i < kClusterCount; ++i) results[i] += result[i];
    for (uint32_t rank = 0; rank < cluster.world(); ++rank) {
      const std::vector<float> gradient = CompressedCluster::gradient(rank, round);
      for (uint64_t i = 0; i < kClusterCount; ++i) gradients[i] += gradient[i];
    }
  }
  double product = 0;
  double a = 0;
  double b = 0;
  for (uint64_t i = 0; i < kClusterCount; ++i) {
    product += results[i] * gradients[i];
    a += results[i] * results[i];
    b += gradients[i] * gradients[i];
  }
  EXPECT_GT(product / std::sqrt(a * b), 0.1);
}

TEST_P(EveryCodec, ATransportThatMisbehavesChangesNothing) {
  const auto slow = [] {
    return make_faulty(test::loopback(), {.seed = 7, .busy = 0.2, .delay = 0.3, .reorder = true});
  };
  CompressedCluster quiet({.agents = 3, .ranks_per_agent = 1}, GetParam());
  CompressedCluster rough({.agents = 3, .ranks_per_agent = 1, .transport = slow}, GetParam());
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(quiet.run_round(round));
    ASSERT_NO_FATAL_FAILURE(rough.run_round(round));
    ASSERT_EQ(quiet.result(0, 0), rough.result(2, 0));
  }
}

INSTANTIATE_TEST_SUITE_P(Registry, EveryCodec, testing::ValuesIn(every_case()),
                         [](const auto& instance) {
                           const std::string& spec = instance.param.spec;
                           return spec.substr(0, spec.find(':')) + "_" +
                                  std::string(communicator_name(instance.param.communicator));
                         });

}  // namespace
}  // namespace gradbus
