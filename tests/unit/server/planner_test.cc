// The planner's promises, over a table of sizes and many random ones.
#include "server/planner.h"

#include <random>

#include "proto/frame.h"
#include "tests/unit/server/cluster.h"

namespace gradbus {
namespace {

using test::make_spec;

constexpr uint64_t kTarget = 256 << 10;

uint64_t chunks(uint64_t count, uint64_t elements) { return (count + elements - 1) / elements; }

struct Row {
  uint64_t count;
  DType dtype;
  uint32_t agents;
  uint64_t chunk_bytes;
  uint64_t expected;
};

TEST(Planner, KnownSizes) {
  const Row rows[] = {
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
  for (const Row& row : rows) {
    const auto spec = make_spec("t", row.count, row.dtype);
    EXPECT_EQ(plan_chunk_elements(spec, row.agents, row.chunk_bytes), row.expected)
        << row.count << " on " << row.agents;
  }
}

TEST(Planner, AllGatherAndBroadcastAreCutByTheTargetAlone) {
  for (const auto kind : {CollectiveKind::kAllGather, CollectiveKind::kBroadcast}) {
    EXPECT_EQ(plan_chunk_elements(make_spec("t", 100'000, DType::kF32, kind), 7, kTarget), 65536u);
    EXPECT_EQ(plan_chunk_elements(make_spec("t", 30'000, DType::kF32, kind), 7, kTarget), 30'000u);
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
    const uint64_t elements = plan_chunk_elements(make_spec("t", count, dtype), agents, kTarget);
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
    const uint64_t elements = plan_chunk_elements(make_spec("t", count), agents, kTarget);
    const uint64_t busiest = (chunks(count, elements) + agents - 1) / agents * elements;
    EXPECT_LE(busiest, count / agents * 11 / 10);
  }
}

}  // namespace
}  // namespace gradbus
