// Tests of the arena: slots never overlap, are aligned and staggered, and respect the quota.
#include "worker_agent/job/arena.h"

#include <gtest/gtest.h>

#include <map>
#include <vector>

namespace gradbus {
namespace {

LocalReductionShape shape_of(CollectiveKind kind, uint64_t count) {
  LocalReductionShape shape;
  shape.kind = kind;
  shape.count = count;
  shape.chunk_elements = 1024;
  shape.chunks = static_cast<uint32_t>(std::max<uint64_t>((count + 1023) / 1024, 1));
  shape.local_size = 3;
  return shape;
}

TEST(Arena, PlacementsAreAlignedAndDoNotOverlap) {
  ShmQuota quota{64 << 20, 0};
  Arena arena("job", 3, 5, quota);
  ASSERT_TRUE(arena.open().ok());
  std::map<std::pair<uint32_t, uint64_t>, uint64_t> used{{{0, 0}, kJobWordBytes}};
  for (uint64_t count = 0; count < 300'000; count = count * 3 + 1)
    for (const auto kind :
         {CollectiveKind::kAllReduce, CollectiveKind::kBroadcast, CollectiveKind::kAllGather}) {
      const LocalReductionShape shape = shape_of(kind, count);
      const auto place = arena.place(shape);
      ASSERT_TRUE(place.ok()) << place.status().message();
      const uint64_t end = place.value().local_reduction_offset + arena.bytes_needed(shape);
      EXPECT_EQ(place.value().data_offset % kDataAlignBytes, 0u);
      EXPECT_LE(end, arena.segments()[place.value().segment]->bytes());
      used[{place.value().segment, place.value().local_reduction_offset}] = end;
      if (kind == CollectiveKind::kAllReduce) {
        EXPECT_NE(place.value().data_stride % 4096, 0u);
        EXPECT_GE(place.value().data_stride, count * 4);
      }
    }
  for (auto entry = used.begin(); std::next(entry) != used.end(); ++entry) {
    if (entry->first.first != std::next(entry)->first.first) continue;
    EXPECT_LE(entry->second, std::next(entry)->first.second);
  }
}

TEST(Arena, TheQuotaIsKeptNamedAndGivenBack) {
  ShmQuota quota{4 << 20, 0};
  {
    Arena arena("greedy", 3, 3, quota);
    ASSERT_TRUE(arena.open().ok());
    const auto refused = arena.place(shape_of(CollectiveKind::kAllReduce, 1 << 20));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.status().code(), Code::kExhausted);
    EXPECT_NE(refused.status().message().find("greedy"), std::string::npos);
    EXPECT_NE(refused.status().message().find("4 MiB"), std::string::npos)
        << refused.status().message();
    EXPECT_TRUE(arena.place(shape_of(CollectiveKind::kAllReduce, 1000)).ok())
        << "small ones still fit";
    EXPECT_GT(quota.bytes_used, 0u);
  }
  EXPECT_EQ(quota.bytes_used, 0u);
}

// The agent may take 1 GiB, and its container has 64 MiB left when the arena asks.
TEST(Arena, AContainerThatIsNearlyFullIsNamedWithNumbers) {
  uint64_t used = 0;
  ShmQuota quota{1u << 30};
  quota.container = [&] { return MemoryLimit{256u << 20, used, "/sys/fs/cgroup/memory.max"}; };
  Arena arena("job", 3, 5, quota);
  ASSERT_TRUE(arena.open().ok());
  used = 192u << 20;
  const Status refused =
      arena.reserve(std::vector{shape_of(CollectiveKind::kAllReduce, 8u << 20)});  // 32 MiB a rank
  EXPECT_EQ(refused.code(), Code::kExhausted);
  for (const char* part : {"GB-S203 CONTAINER_FULL", "job \"job\" asks for",
                           "64 MiB left of 256 MiB", "/sys/fs/cgroup/memory.max"})
    EXPECT_NE(refused.message().find(part), std::string::npos) << refused.message();
  EXPECT_LT(quota.bytes_used, 2u << 20);
  used = 0;
  EXPECT_TRUE(arena.reserve(std::vector{shape_of(CollectiveKind::kAllReduce, 8u << 20)}).ok());
}

}  // namespace
}  // namespace gradbus
