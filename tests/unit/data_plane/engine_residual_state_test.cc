// Tests the state of compressed tensors between rounds: nothing is lost, and it can be read,
// written and scaled. Also tests the check for numbers that are not finite, and the fidelity gauge.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/unit/data_plane/compressed_cluster.h"

namespace gradbus {
namespace {

using test::CompressedCase;
using test::CompressedCluster;
using test::kClusterCount;
using testing::HasSubstr;

const test::Layout kFourRanks{.agents = 2, .ranks_per_agent = 2};

std::vector<double> sum_of_gradients(uint32_t world, uint64_t rounds) {
  std::vector<double> sum(kClusterCount);
  for (uint64_t round = 1; round <= rounds; ++round)
    for (uint32_t rank = 0; rank < world; ++rank) {
      const std::vector<float> gradient = CompressedCluster::gradient(rank, round);
      for (uint64_t i = 0; i < kClusterCount; ++i) sum[i] += gradient[i];
    }
  return sum;
}

void expect_near(const std::vector<double>& got, const std::vector<double>& wanted) {
  for (uint64_t i = 0; i < kClusterCount; ++i)
    ASSERT_NEAR(got[i], wanted[i], 2e-3) << "element " << i;
}

std::vector<double> plus(std::vector<double> a, const std::vector<float>& b) {
  for (uint64_t i = 0; i < kClusterCount; ++i) a[i] += b[i];
  return a;
}

class Memories : public testing::TestWithParam<CompressedCase> {};

// The guarantee of error feedback: results and the ranks' shares add up to all gradients.
TEST_P(Memories, ResultsAndSharesAddUpToTheGradients) {
  CompressedCluster cluster(kFourRanks, GetParam());
  std::vector<double> results(kClusterCount);
  for (uint64_t round = 1; round <= 3; ++round) {
    ASSERT_NO_FATAL_FAILURE(cluster.run_round(round));
    results = plus(results, cluster.result(0, 0));
  }
  cluster.start(CompressedCluster::memory(SubmissionKind::kReadResidualState));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  std::vector<double> sum = cluster.total();
  for (uint64_t i = 0; i < kClusterCount; ++i) sum[i] += results[i];
  expect_near(sum, sum_of_gradients(4, 3));
}

// Shares are redistributed, even all to one rank, and read again. The sum must not change, and it
// is sent later.
TEST_P(Memories, SharesMayBeDealtOutAnew) {
  CompressedCluster cluster(kFourRanks, GetParam());
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(1));
  const std::vector<float> first = cluster.result(0, 0);
  cluster.start(CompressedCluster::memory(SubmissionKind::kReadResidualState));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  const std::vector<double> kept = cluster.total();
  cluster.for_each_rank([&](uint32_t agent, uint32_t local) {
    const bool all = agent == 1 && local == 1;
    cluster.put(
        agent, local,
        all ? std::vector<float>(kept.begin(), kept.end()) : std::vector<float>(kClusterCount));
  });
  cluster.start(CompressedCluster::memory(SubmissionKind::kWriteResidualState));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(2));
  const std::vector<float> second = cluster.result(1, 0);
  cluster.start(CompressedCluster::memory(SubmissionKind::kReadResidualState));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  expect_near(plus(plus(cluster.total(), first), second), sum_of_gradients(4, 2));
}

TEST_P(Memories, ScaledBeforeTheRoundTheyAreHalfAsMuch) {
  CompressedCluster cluster(kFourRanks, GetParam());
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(1));
  cluster.start(CompressedCluster::memory(SubmissionKind::kReadResidualState));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  std::vector<double> half = cluster.total();
  for (double& value : half) value /= 2;
  cluster.for_each_rank([&](uint32_t agent, uint32_t local) {
    cluster.put(agent, local, std::vector<float>(kClusterCount));
  });
  cluster.start(CompressedCluster::posted(0.5));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  const std::vector<float> sent = cluster.result(0, 0);
  cluster.start(CompressedCluster::memory(SubmissionKind::kReadResidualState));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  expect_near(plus(cluster.total(), sent), half);
}

INSTANTIATE_TEST_SUITE_P(Kinds, Memories,
                         testing::Values(CompressedCase{"topk:ratio=0.1", Communicator::kAllGather},
                                         CompressedCase{"topk:ratio=0.1", Communicator::kAllReduce},
                                         CompressedCase{"topk:ratio=0.1", Communicator::kPs},
                                         CompressedCase{"efsignsgd:block=64", Communicator::kPs},
                                         CompressedCase{"onebit", Communicator::kAllGather},
                                         CompressedCase{"int8:ef=residual", Communicator::kPs},
                                         CompressedCase{"blocktopk:block=32",
                                                        Communicator::kAllReduce},
                                         CompressedCase{"powersgd", Communicator::kAllReduce}),
                         [](const auto& instance) {
                           const std::string& spec = instance.param.spec;
                           return spec.substr(0, spec.find(':')) + "_" +
                                  std::string(communicator_name(instance.param.communicator));
                         });

// Reading a part of the state is no round of the exchange, so agents may differ in how often they
// read.
TEST(MemoryRounds, AgentsNeedNotHaveAsMany) {
  CompressedCluster cluster(kFourRanks, {"topk:ratio=0.1", Communicator::kAllGather});
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(1));
  for (int i = 0; i < 3; ++i) {
    cluster.start(1, CompressedCluster::memory(SubmissionKind::kReadResidualState));
    ASSERT_NO_FATAL_FAILURE(cluster.finish(1));
  }
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(2));
  ASSERT_NO_FATAL_FAILURE(cluster.expect_same_bits_everywhere());
}

// m = 0.9 m + g. After one round of g, m is g where nothing was sent and 0 where it was sent
// (masking).
class Momentum : public testing::TestWithParam<CompressedCase> {};

TEST_P(Momentum, IsMaskedReadAndWritten) {
  CompressedCluster cluster({.agents = 2, .ranks_per_agent = 1}, GetParam());
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(1));
  const auto read =
      CompressedCluster::memory(SubmissionKind::kReadResidualState, ResidualStatePart::kMomentum);
  cluster.start(read);
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  const std::vector<float> gradient = CompressedCluster::gradient(1, 1);
  const std::vector<float> momentum = cluster.result(1, 0);
  uint64_t sent = 0;
  for (uint64_t i = 0; i < kClusterCount; ++i) {
    if (momentum[i] == 0) ++sent;
    ASSERT_TRUE(momentum[i] == 0 || momentum[i] == gradient[i]) << i;
  }
  EXPECT_NEAR(static_cast<double>(sent), 100, 40);
  for (uint32_t agent = 0; agent < 2; ++agent)
    cluster.put(agent, 0, std::vector<float>(kClusterCount, 3));
  cluster.start(
      CompressedCluster::memory(SubmissionKind::kWriteResidualState, ResidualStatePart::kMomentum));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  cluster.start(read);
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  EXPECT_EQ(cluster.result(0, 0), std::vector<float>(kClusterCount, 3));
}

INSTANTIATE_TEST_SUITE_P(Selections, Momentum,
                         testing::Values(CompressedCase{"dgc:ratio=0.1", Communicator::kAllGather},
                                         CompressedCase{"dgc:ratio=0.1", Communicator::kAllReduce},
                                         CompressedCase{"randk:ratio=0.1,ef=dgc",
                                                        Communicator::kAllReduce},
                                         CompressedCase{"blocktopk:ratio=0.1,block=16,ef=dgc",
                                                        Communicator::kAllReduce}),
                         [](const auto& instance) {
                           const std::string& spec = instance.param.spec;
                           return spec.substr(0, spec.find(':')) + "_" +
                                  std::string(communicator_name(instance.param.communicator));
                         });

// fp16 keeps no residual: written values go into the next sum.
TEST(MemoryRounds, WithoutAMemoryAWrittenResidualIsSentNext) {
  CompressedCluster cluster(kFourRanks, {"fp16", Communicator::kAllReduce});
  cluster.for_each_rank([&](uint32_t agent, uint32_t local) {
    cluster.put(agent, local, std::vector<float>(kClusterCount, 0.25F));
  });
  cluster.start(CompressedCluster::memory(SubmissionKind::kWriteResidualState));
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  cluster.for_each_rank([&](uint32_t agent, uint32_t local) {
    cluster.put(agent, local, std::vector<float>(kClusterCount, 1));
  });
  cluster.start(CompressedCluster::posted());
  ASSERT_NO_FATAL_FAILURE(cluster.finish());
  EXPECT_EQ(cluster.result(0, 0), std::vector<float>(kClusterCount, 5));
}

TEST(MemoryRounds, RanksOfANodeThatDisagreeAreNamed) {
  CompressedCluster cluster(kFourRanks, {"topk", Communicator::kAllGather});
  cluster.cluster().post(0, 0, 0, 1, CompressedCluster::posted());
  cluster.cluster().post(0, 1, 0, 1, CompressedCluster::memory(SubmissionKind::kReadResidualState));
  const auto broken = cluster.cluster().broken(0);
  ASSERT_EQ(broken.size(), 1u);
  EXPECT_THAT(broken[0].status.message(), HasSubstr("GB-O902"));
  EXPECT_THAT(broken[0].status.message(), HasSubstr("rank 1 of job"));
}

TEST(MemoryRounds, NonsenseInARecordIsRefused) {
  Submission part = CompressedCluster::memory(SubmissionKind::kReadResidualState);
  part.residual_state_part = 2;
  Submission kind = CompressedCluster::posted();
  kind.kind = 4;
  for (const Submission& record :
       {part, kind, CompressedCluster::posted(std::numeric_limits<double>::quiet_NaN()),
        CompressedCluster::posted(-1)}) {
    CompressedCluster cluster({.agents = 2}, {"topk", Communicator::kAllGather});
    cluster.cluster().post(0, 0, 0, 1, record);
    const auto broken = cluster.cluster().broken(0);
    ASSERT_EQ(broken.size(), 1u);
    EXPECT_THAT(broken[0].status.message(), HasSubstr("GB-S210"));
  }
}

// ---- nan=stop

TEST(Gate, NamesRankTensorAndFirstElement) {
  for (const uint32_t bad_rank : {2u, 3u}) {
    CompressedCluster cluster(kFourRanks, {"onebit:nan=stop", Communicator::kAllGather});
    cluster.for_each_rank([&](uint32_t agent, uint32_t local) {
      std::vector<float> gradient(kClusterCount, 1);
      if (2 * agent + local == bad_rank) gradient[777] = gradient[900] = NAN;
      cluster.put(agent, local, gradient);
    });
    cluster.start(CompressedCluster::posted());
    const auto broken = cluster.cluster().broken(1);
    ASSERT_EQ(broken.size(), 1u);
    const std::string& message = broken[0].status.message();
    EXPECT_THAT(message, HasSubstr("GB-O901"));
    EXPECT_THAT(message,
                HasSubstr("tensor \"t\": element 777 of rank " + std::to_string(bad_rank)));
  }
}

// ---- fidelity=

// Compares with the definition in f64: |compressed - dense| / |dense|, and the cosine over the
// measured partition, which is number round / 2 % 4 of 4.
TEST(Fidelity, IsWhatTheDefinitionsSay) {
  CompressedCluster cluster(kFourRanks, {"int4:ef=none,fidelity=2", Communicator::kAllGather});
  for (uint64_t round = 1; round <= 6; ++round) {
    ASSERT_NO_FATAL_FAILURE(cluster.run_round(round));
    auto samples = cluster.cluster().nodes[0]->fidelity->take();
    ASSERT_EQ(samples.size(), round % 2 == 0 ? 1u : 0u);
    if (samples.empty()) continue;
    const std::vector<double> dense = [&] {
      std::vector<double> all = sum_of_gradients(4, round);
      const std::vector<double> before = sum_of_gradients(4, round - 1);
      for (uint64_t i = 0; i < kClusterCount; ++i) all[i] -= before[i];
      return all;
    }();
    const std::vector<float> result = cluster.result(0, 0);
    double product = 0;
    double dense_square = 0;
    double result_square = 0;
    double error_square = 0;
    const uint64_t first = round / 2 % 4 * test::kPartition;
    for (uint64_t i = first; i < std::min(first + test::kPartition, kClusterCount); ++i) {
      product += dense[i] * result[i];
      dense_square += dense[i] * dense[i];
      result_square += static_cast<double>(result[i]) * result[i];
      error_square += (result[i] - dense[i]) * (result[i] - dense[i]);
    }
    EXPECT_NEAR(samples[0].cosine, product / std::sqrt(dense_square * result_square), 1e-5);
    EXPECT_NEAR(samples[0].relative_error, std::sqrt(error_square / dense_square), 1e-5);
    EXPECT_EQ(samples[0].residual_ratio, 0);
    EXPECT_EQ(samples[0].round, round);
  }
}

TEST(Fidelity, SeesWhatIsKeptForLater) {
  CompressedCluster cluster(kFourRanks, {"topk:ratio=0.1,fidelity=1", Communicator::kAllGather});
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(1));
  const auto first = cluster.cluster().nodes[1]->fidelity->take();
  ASSERT_NO_FATAL_FAILURE(cluster.run_round(2));
  const auto second = cluster.cluster().nodes[1]->fidelity->take();
  ASSERT_EQ(first.size() + second.size(), 2u);
  EXPECT_GT(first.at(0).residual_ratio,
            0.5);  // a tenth of the elements has less than half of the norm
  EXPECT_LT(first.at(0).residual_ratio, 1);
  EXPECT_GT(second.at(0).residual_ratio, first.at(0).residual_ratio);
}

}  // namespace
}  // namespace gradbus
