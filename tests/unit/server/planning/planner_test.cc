// The planner's promises, over a table of sizes and many random ones.
#include "server/coordinator/planning/planner.h"

#include <gmock/gmock.h>

#include <random>

#include "proto/algorithms.h"
#include "proto/frame.h"
#include "tests/unit/server/coordinator/cluster.h"

namespace gradbus {
namespace {

using test::make_spec;

constexpr uint64_t kTarget = 256 << 10;

// What a ring of `agents` with one rank each gets.
uint64_t ring_chunk(const v1::TensorSpec& spec, uint32_t agents, uint64_t chunk_bytes) {
  return plan_chunk_elements(spec, {agents, agents}, chunk_bytes, Algorithm::kRing);
}

uint64_t chunks(uint64_t count, uint64_t elements) { return (count + elements - 1) / elements; }

struct SizeRow {
  uint64_t count;
  DType dtype;
  uint32_t agents;
  uint64_t chunk_bytes;
  uint64_t expected;
};

TEST(Planner, KnownSizes) {
  const SizeRow rows[] = {
      {0, DType::kF32, 4, kTarget, 1},
      {1, DType::kF32, 4, kTarget, 1},
      {16383, DType::kF32, 4, kTarget, 16383},  // below 4 * 16 KiB: one chunk
      {16384, DType::kF32, 4, kTarget, 4096},   // 64 KiB: four chunks of 16 KiB
      {65536, DType::kF32, 1, kTarget, 65536},  // one agent: just the target
      {65537, DType::kF32, 1, kTarget, 65536},
      {1 << 20, DType::kF32, 2, kTarget, 65536},   // 4 MiB: 16 chunks already
      {1 << 20, DType::kF64, 3, kTarget, 31808},   // 8 MiB: 32 would not divide by 3, 33 does
      {1 << 22, DType::kU8, 1, 4 << 20, 1 << 20},  // never above a frame's payload
      {1 << 22, DType::kF64, 1, 1, 64},            // never below an alignment unit
  };
  for (const SizeRow& row : rows) {
    const auto spec = make_spec("t", row.count, row.dtype);
    EXPECT_EQ(ring_chunk(spec, row.agents, row.chunk_bytes), row.expected)
        << row.count << " on " << row.agents;
  }
}

TEST(Planner, AllGatherAndBroadcastAreCutByTheTargetAlone) {
  for (const auto kind : {CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
    EXPECT_EQ(ring_chunk(make_spec("t", 100'000, DType::kF32, kind), 7, kTarget), 65536u);
    EXPECT_EQ(ring_chunk(make_spec("t", 30'000, DType::kF32, kind), 7, kTarget), 30'000u);
  }
}

TEST(Planner, RandomTensorsKeepThePromises) {
  std::mt19937_64 random(7);
  int uneven = 0;
  for (int i = 0; i < 20'000; ++i) {
    const auto dtype = static_cast<DType>(1 + random() % 7);
    const uint64_t bytes = dtype_bytes(dtype);
    const uint64_t count = random() % (uint64_t{1} << (1 + random() % 34)) / bytes;
    const uint32_t agents = 1 + random() % 32;
    const uint64_t elements = ring_chunk(make_spec("t", count, dtype), agents, kTarget);
    SCOPED_TRACE(testing::Message() << count << " x " << bytes << " B, " << agents << " agents");
    ASSERT_GE(elements, 1u);
    ASSERT_LE(elements * bytes, kFramePayloadBytesMax);
    if (count <= elements) continue;
    ASSERT_EQ(elements % 64, 0u);
    if (agents == 1 || count * bytes < agents * kOwnerBytesMin) continue;
    const uint64_t pieces = chunks(count, elements);
    // With dozens of chunks an owner, one more or less is noise.
    ASSERT_TRUE(pieces % agents == 0 || pieces / agents >= 32) << pieces << " chunks";
    uneven += pieces % agents != 0;
  }
  EXPECT_LT(uneven, 20);
}

TEST(Planner, ThousandsOfAgentsStayNearlyBalanced) {
  for (const uint32_t agents : {1000u, 4096u}) {
    const uint64_t count = agents * 4100ull;
    const uint64_t elements = ring_chunk(make_spec("t", count), agents, kTarget);
    const uint64_t busiest = (chunks(count, elements) + agents - 1) / agents * elements;
    EXPECT_LE(busiest, count / agents * 11 / 10);
  }
}

// ---- reduce-scatter

TEST(Planner, ReduceScatterIsCutInsideTheLargestShard) {
  auto spec = make_spec("t", 1'000'003, DType::kF32, CollectiveKind::kReduceScatter);
  const JobSize size{.agents = 2, .world = 4};
  EXPECT_EQ(plan_chunk_elements(spec, size, kTarget, Algorithm::kRing), 65536u);
  EXPECT_EQ(plan_chunk_elements(spec, size, 1 << 20, Algorithm::kRing), 250'001u);  // one chunk
  spec.set_count(30'000);
  spec.set_row_elements(1000);  // 30 rows: shards of 8, 8, 7 and 7
  EXPECT_EQ(plan_chunk_elements(spec, size, kTarget, Algorithm::kRing), 8000u);
  spec.set_count(0);
  EXPECT_EQ(plan_chunk_elements(spec, size, kTarget, Algorithm::kRing), 1u);
}

// ---- algorithms

Algorithm planned(const v1::TensorSpec& spec, uint32_t agents, const PlanOptions& options = {}) {
  return plan_tensor(spec, {agents, agents}, options).algorithm;
}

TEST(Planner, SmallAllReducesTakeTheFewestHopsLargeOnesTheFewestBytes) {
  for (const uint32_t agents : {2u, 3u, 4u, 8u, 9u}) {
    EXPECT_EQ(planned(make_spec("t", 1), agents), Algorithm::kRecursiveDoubling);
    EXPECT_EQ(planned(make_spec("t", 1024), agents), Algorithm::kRecursiveDoubling);
    EXPECT_EQ(planned(make_spec("t", 100 << 20), agents), Algorithm::kRing);
  }
  const PlanOptions options;
  const TensorPlan plan = plan_tensor(make_spec("t", 1024), {4, 9}, options);
  EXPECT_EQ(plan.chunk_elements, 1024u);
}

// Once another algorithm wins it keeps winning, so there is one limit and not a mosaic.
TEST(Planner, ThereIsOneSizeAtWhichRecursiveDoublingEnds) {
  for (const uint32_t agents : {2u, 4u, 7u, 16u}) {
    bool ended = false;
    for (uint64_t count = 1; count <= (1 << 22); count *= 2) {
      const bool doubling = planned(make_spec("t", count), agents) == Algorithm::kRecursiveDoubling;
      EXPECT_FALSE(ended && doubling) << count << " on " << agents;
      ended = ended || !doubling;
    }
    EXPECT_TRUE(ended);
  }
}

TEST(Planner, EveryPlanFitsItsKindAndAFrame) {
  for (uint32_t kind = 1; is_collective(kind); ++kind) {
    for (uint32_t agents = 1; agents <= 9; ++agents) {
      for (uint64_t count = 0; count < (1 << 24); count = count * 5 + 1) {
        for (uint32_t forced = 0; is_algorithm(forced); ++forced) {
          PlanOptions options;
          options.algorithm = static_cast<Algorithm>(forced);
          options.deterministic = count % 2 == 0;
          const auto spec = make_spec("t", count, DType::kF64, static_cast<CollectiveKind>(kind));
          const TensorPlan plan = plan_tensor(spec, {agents, agents * 2}, options);
          ASSERT_TRUE(fits(static_cast<CollectiveKind>(kind), plan.algorithm));
          ASSERT_GE(plan.chunk_elements, 1u);
          ASSERT_LE(plan.chunk_elements * 8, kFramePayloadBytesMax);
          if (options.deterministic) {
            ASSERT_TRUE(is_deterministic(static_cast<CollectiveKind>(kind), plan.algorithm));
          }
          if (agents > 1 && plan.algorithm == Algorithm::kRecursiveDoubling) {
            ASSERT_GE(plan.chunk_elements, count);
          }
        }
      }
    }
  }
}

TEST(Planner, AForcedAlgorithmIsTakenWhereItFits) {
  PlanOptions options;
  options.algorithm = Algorithm::kTree;
  EXPECT_EQ(planned(make_spec("t", 100), 4, options), Algorithm::kTree);
  const auto gather = make_spec("t", 100, DType::kF32, CollectiveKind::kGather);
  EXPECT_EQ(planned(gather, 4, options), Algorithm::kDirect);
  options.algorithm = Algorithm::kRecursiveDoubling;
  EXPECT_EQ(planned(make_spec("t", (1 << 18) + 1), 4, options), Algorithm::kRing);  // no frame
  options.algorithm = Algorithm::kRing;
  options.deterministic = true;
  EXPECT_EQ(planned(make_spec("t", 1 << 20), 4, options), Algorithm::kChain);
}

TEST(Planner, DeterministicModeChoosesAlikeForEveryChunkSize) {
  for (uint64_t count = 1; count <= (1 << 22); count *= 2) {
    PlanOptions options;
    options.deterministic = true;
    const Algorithm first = planned(make_spec("t", count), 4, options);
    for (const uint64_t chunk_bytes : {4u << 10, 64u << 10, 1u << 20}) {
      options.chunk_bytes = chunk_bytes;
      EXPECT_EQ(planned(make_spec("t", count), 4, options), first) << count;
    }
  }
}

TEST(Planner, DeterministicModeChoosesAlikeWhateverWasMeasured) {
  const PathFigures slow{.alpha_us = 3, .beta_ns = 80, .gamma_ns = 5};
  int others = 0;
  for (uint64_t count = 1; count <= (1 << 22); count *= 2) {
    PlanOptions options;
    options.deterministic = true;
    const Algorithm constant = planned(make_spec("t", count), 4, options);
    options.measured = slow;
    EXPECT_EQ(planned(make_spec("t", count), 4, options), constant) << count;
    options.told = slow;
    others += planned(make_spec("t", count), 4, options) != constant;
  }
  EXPECT_GT(others, 0) << "these figures make no difference, so this test proves nothing";
}

TEST(Planner, WhatTheUserSaysWinsOverWhatWasMeasured) {
  PlanOptions options;
  options.measured = {.alpha_us = 200, .beta_ns = 1, .gamma_ns = 0.1};
  const auto spec = make_spec("t", 100 << 20);
  const auto chunk_bytes = [&] { return plan_tensor(spec, {2, 2}, options).chunk_elements * 4; };
  EXPECT_EQ(chunk_bytes(), 1u << 20);  // 4 * 200 us at 1 ns a byte: 800 kB
  options.told.beta_ns = 8;            // 100 kB
  EXPECT_EQ(chunk_bytes(), 128u << 10);
  options.told.alpha_us = 20;  // 10 kB
  EXPECT_EQ(chunk_bytes(), 64u << 10);
  options.chunk_bytes = 512 << 10;
  EXPECT_EQ(chunk_bytes(), 512u << 10);
}

TEST(Planner, OneAgentHasNoPath) {
  PlanOptions options;
  options.told = {.alpha_us = 200, .beta_ns = 1, .gamma_ns = 0.1};
  const auto spec = make_spec("t", 100 << 20);
  EXPECT_EQ(plan_tensor(spec, {1, 4}, options).chunk_elements * 4, 256u << 10);
}

TEST(Planner, NamesOfAlgorithms) {
  EXPECT_EQ(parse_algorithm("auto", true).value(), Algorithm::kAuto);
  EXPECT_EQ(parse_algorithm("halving_doubling", false).value(), Algorithm::kHalvingDoubling);
  EXPECT_EQ(parse_algorithm("chain", true).value(), Algorithm::kChain);
  EXPECT_THAT(parse_algorithm("rign", false).status().message(),
              testing::HasSubstr("--algorithm \"rign\" is unknown; there are: auto, ring, chain"));
  EXPECT_THAT(parse_algorithm("tree", true).status().message(),
              testing::HasSubstr("use --algorithm=chain or recursive_doubling"));
}

// ---- the cost model: Thakur, Rabenseifner and Gropp 2005, by hand. 4 agents, 4000 bytes in one
// chunk: a message 10 us, a byte 1 ns, combining it 0.5 ns.

TEST(CostModel, FormulasByHand) {
  const PathCost cost{.alpha_us = 10, .beta_ns = 1, .gamma_ns = 0.5, .crowding = 2};
  using K = CollectiveKind;
  const auto us = [&](K kind, Algorithm algorithm, uint64_t chunk = 4000) {
    return predicted_us({kind, 4000, chunk, 4, 4}, algorithm, cost);
  };
  // Two exchanges of 10 + 4 + 2.
  EXPECT_DOUBLE_EQ(us(K::kAllReduce, Algorithm::kRecursiveDoubling), 32);
  // A credit and 6 hops of 10; 2 * 3/4 * 4000 bytes; 3/4 of them combined.
  EXPECT_DOUBLE_EQ(us(K::kAllReduce, Algorithm::kRing, 1000), 70 + 6 + 1.5);
  // One chunk crosses all hops and is combined as a whole.
  EXPECT_DOUBLE_EQ(us(K::kAllReduce, Algorithm::kRing), 70 + 24 + 2);
  // 4 hops; 6000 bytes, crowded.
  EXPECT_DOUBLE_EQ(us(K::kAllReduce, Algorithm::kHalvingDoubling, 1000), 50 + 12 + 1.5);
  EXPECT_DOUBLE_EQ(us(K::kAllReduce, Algorithm::kChain, 1000), 70 + 8 + 2);
  EXPECT_DOUBLE_EQ(us(K::kReduce, Algorithm::kRing, 1000), 40 + 4 + 2);
  EXPECT_DOUBLE_EQ(us(K::kReduce, Algorithm::kTree, 1000), 30 + 8 + 4);
  EXPECT_DOUBLE_EQ(us(K::kReduceScatter, Algorithm::kRing, 1000), 40 + 3 + 1.5);
  EXPECT_DOUBLE_EQ(us(K::kBroadcast, Algorithm::kRing, 1000), 40 + 4);
  EXPECT_DOUBLE_EQ(us(K::kBroadcast, Algorithm::kTree), 30 + 8);
  EXPECT_DOUBLE_EQ(us(K::kBroadcast, Algorithm::kDirect), 20 + 12);
  EXPECT_DOUBLE_EQ(us(K::kAllGather, Algorithm::kRing), 40 + 12);
  EXPECT_DOUBLE_EQ(us(K::kAllGather, Algorithm::kDirect), 20 + 24);
  EXPECT_DOUBLE_EQ(predicted_us({K::kAllReduce, 4000, 4000, 1, 4}, Algorithm::kRing, cost), 0);
}

TEST(CostModel, ToldThenMeasuredThenConstant) {
  const PathCost constants = path_cost({}, {});
  EXPECT_EQ(constants.alpha_us, kTcpPath.alpha_us);
  EXPECT_EQ(constants.beta_ns, kTcpPath.beta_ns);
  EXPECT_EQ(constants.gamma_ns, kTcpPath.gamma_ns);
  const PathCost mixed = path_cost({.alpha_us = 1}, {.alpha_us = 2, .beta_ns = 3});
  EXPECT_EQ(mixed.alpha_us, 1);
  EXPECT_EQ(mixed.beta_ns, 3);
  EXPECT_EQ(mixed.gamma_ns, kTcpPath.gamma_ns);
  EXPECT_EQ(mixed.crowding, kTcpPath.crowding);
}

// Bytes of 4 alpha, up to the next power of two.
TEST(CostModel, ChunksByTheBandwidthDelayProduct) {
  const auto chunk = [](double alpha_us, double beta_ns) {
    return chunk_bytes_for({.alpha_us = alpha_us, .beta_ns = beta_ns});
  };
  EXPECT_EQ(chunk_bytes_for(kTcpPath), 256u << 10);  // 160 kB
  EXPECT_EQ(chunk(200, 80), 64u << 10);              // 10 kB: the least
  EXPECT_EQ(chunk(200, 8), 128u << 10);              // 100 kB
  EXPECT_EQ(chunk(16.384, 1), 64u << 10);            // 65536 bytes
  EXPECT_EQ(chunk(16.385, 1), 128u << 10);
  EXPECT_EQ(chunk(5000, 0.8), 1u << 20);  // 25 MB: the most
  EXPECT_EQ(chunk(1e7, 1e-4), 1u << 20);
  EXPECT_EQ(chunk(0.01, 1e6), 64u << 10);
}

// 256 KiB on four agents: worth fewer messages where bytes are cheap, fewer bytes where they are
// not.
TEST(CostModel, ASlowNetworkWantsFewerBytes) {
  const auto spec = make_spec("t", 1 << 16);
  PlanOptions options;
  EXPECT_EQ(planned(spec, 4, options), Algorithm::kRecursiveDoubling);
  options.told.beta_ns = 8;  // 1 Gbit/s
  EXPECT_NE(planned(spec, 4, options), Algorithm::kRecursiveDoubling);
}

TEST(CostModel, TwoAgentsAreNotCrowded) {
  const PathCost cost{.alpha_us = 0, .beta_ns = 1, .gamma_ns = 0, .crowding = 2};
  const ExchangeSize two{CollectiveKind::kAllReduce, 1'000'000, 1000, 2, 2};
  EXPECT_DOUBLE_EQ(predicted_us(two, Algorithm::kRing, cost), 1000);
  EXPECT_DOUBLE_EQ(predicted_us(two, Algorithm::kHalvingDoubling, cost), 1000);
}

}  // namespace
}  // namespace gradbus
