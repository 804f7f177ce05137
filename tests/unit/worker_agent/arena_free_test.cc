// Tests memory of an arena that is freed and reused, against a model: an array with the owner of
// each byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "worker_agent/job/arena.h"

namespace gradbus {
namespace {

LocalReductionShape shape_of(uint64_t count) {
  LocalReductionShape shape;
  shape.kind = CollectiveKind::kAllReduce;
  shape.count = count;
  shape.chunk_elements = 1024;
  shape.chunks = static_cast<uint32_t>(std::max<uint64_t>((count + 1023) / 1024, 1));
  shape.local_size = 2;
  return shape;
}

bool all_are(std::span<const std::byte> bytes, unsigned char value) {
  return std::ranges::all_of(bytes, [value](std::byte byte) { return byte == std::byte{value}; });
}

// The model is an array of owners for bytes 0 .. kBytes - 1. Extents must equal its runs.
TEST(Extents, AreWhatASetOfBytesSays) {
  constexpr uint64_t kBytes = 200;
  std::mt19937 draw(7);
  Extents extents;
  std::vector<bool> model(kBytes);
  for (int step = 0; step < 20'000; ++step) {
    Extents::Extent range{draw() % kBytes, 0};
    range.end = range.begin + draw() % (kBytes - range.begin + 1);
    const bool in = draw() % 2 == 0;
    std::fill(model.begin() + static_cast<long>(range.begin),
              model.begin() + static_cast<long>(range.end), in);
    in ? (void)extents.insert(range) : extents.erase(range);
    std::vector<Extents::Extent> runs;
    for (uint64_t at = 0; at < kBytes; ++at) {
      if (!model[at]) continue;
      if (at == 0 || !model[at - 1]) runs.push_back({at, at});
      runs.back().end = at + 1;
    }
    std::vector<Extents::Extent> found;
    extents.each_in({0, kBytes}, [&](Extents::Extent extent) { found.push_back(extent); });
    ASSERT_EQ(found, runs) << step;
    const uint64_t wanted = draw() % 40 + 1;
    const Extents::Extent* best = nullptr;
    for (const auto& run : runs)
      if (run.bytes() >= wanted && (best == nullptr || run.bytes() < best->bytes())) best = &run;
    const auto fit = extents.best_fit(wanted);
    ASSERT_EQ(fit.has_value(), best != nullptr);
    if (fit) {
      ASSERT_EQ(*fit, *best);
    }
  }
}

class FreedMemory : public testing::TestWithParam<bool> {};

// Every slot is filled with its own number and must still contain it when it is freed. New
// slots must contain zeros. Other tensors are alive meanwhile.
TEST_P(FreedMemory, IsZeroWhenItIsUsedAgainAndNobodyElsesBefore) {
  struct Placed {
    ArenaSlot place;
    LocalReductionShape shape;
    unsigned char mark;
  };
  ShmQuota quota{256 << 20, 0};
  {
    Arena arena("job", 2, 2, quota);
    ASSERT_TRUE(arena.open().ok());
    if (GetParam()) arena.keep_pages();
    std::mt19937 draw(11);
    std::vector<Placed> alive;
    size_t segments = 0;
    for (int step = 0; step < 1000; ++step) {
      if (alive.size() < 12 && draw() % 2 == 0) {
        const LocalReductionShape shape =
            shape_of(draw() % 8 == 0 ? draw() % 60'000 : draw() % 3000);
        const auto place = arena.place(shape);
        ASSERT_TRUE(place.ok()) << place.status().message();
        std::byte* const bytes =
            arena.segments()[place.value().segment]->at(place.value().local_reduction_offset);
        const uint64_t size = arena.bytes_needed(shape);
        ASSERT_TRUE(all_are({bytes, size}, 0)) << step;
        const auto mark = static_cast<unsigned char>(1 + step % 255);
        std::memset(bytes, mark, size);
        alive.push_back({place.value(), shape, mark});
      } else if (!alive.empty()) {
        const size_t which = draw() % alive.size();
        const Placed gone = alive[which];
        const std::byte* const bytes =
            arena.segments()[gone.place.segment]->at(gone.place.local_reduction_offset);
        ASSERT_TRUE(all_are({bytes, arena.bytes_needed(gone.shape)}, gone.mark)) << step;
        arena.free(gone.place, gone.shape);
        alive.erase(alive.begin() + static_cast<long>(which));
      }
      if (step == 500) segments = arena.segments().size();
    }
    EXPECT_LE(arena.segments().size(), segments + 2) << "it grows although memory is freed";
    const uint64_t before = quota.bytes_used;
    for (const Placed& gone : alive) arena.free(gone.place, gone.shape);
    uint64_t all = 0;
    for (const auto& segment : arena.segments()) all += segment->bytes();
    EXPECT_EQ(arena.bytes_free(), all - kJobWordBytes) << "free memory has come together again";
    if (GetParam()) {
      EXPECT_EQ(quota.bytes_used, before);
    } else {
      EXPECT_LT(quota.bytes_used, before) << "pages went back";
    }
  }
  EXPECT_EQ(quota.bytes_used, 0u);
}

INSTANTIATE_TEST_SUITE_P(Pages, FreedMemory, testing::Bool());

// Descriptors end long before memory does.
TEST(Arena, HasFewSegments) {
  ShmQuota quota{8ull << 30, 0};
  Arena growing("growing", 2, 2, quota);
  ASSERT_TRUE(growing.open().ok());
  for (uint64_t count = 1 << 18; count < 1 << 21; count += 1 << 15) {  // 56 sizes of 2 to 16 MiB
    const auto place = growing.place(shape_of(count));
    ASSERT_TRUE(place.ok()) << place.status().message();
    growing.free(place.value(), shape_of(count));
  }
  EXPECT_LE(growing.segments().size(), 13u);  // 1.25^10 = 9
  EXPECT_LE(quota.bytes_used, 4u << 20);
  Arena large("large", 2, 2, quota);
  ASSERT_TRUE(large.open().ok());
  for (int i = 0; i < 300; ++i) ASSERT_TRUE(large.place(shape_of(1 << 17)).ok());  // 1 MiB each
  EXPECT_LE(large.segments().size(), 75u);
  EXPECT_LE(quota.bytes_used, 350u << 20);
}

// What is asked fits the quota, and what would be comfortable does not.
TEST(Arena, GrowsByNoMoreThanThereIs) {
  ShmQuota quota{40 << 20, 0};
  Arena arena("job", 2, 2, quota);
  ASSERT_TRUE(arena.open().ok());
  for (const uint64_t count : {1 << 21, (1 << 21) + (1 << 20), 9 << 19}) {  // 16, 24 and 36 MiB
    const auto place = arena.place(shape_of(count));
    ASSERT_TRUE(place.ok()) << place.status().message();
    arena.free(place.value(), shape_of(count));
  }
}

TEST(Arena, SizesThatDoNotFitANumberAreRefused) {
  ShmQuota quota{1 << 30, 0};
  Arena arena("huge", 128, 4096, quota);
  ASSERT_TRUE(arena.open().ok());
  LocalReductionShape shape = shape_of(uint64_t{1} << 38);
  shape.kind = CollectiveKind::kAllToAll;
  EXPECT_EQ(arena.bytes_needed(shape), UINT64_MAX);
  EXPECT_EQ(arena.place(shape).status().code(), Code::kExhausted);
  EXPECT_EQ(arena.reserve(std::vector<LocalReductionShape>{shape, shape}).code(), Code::kExhausted);
}

}  // namespace
}  // namespace gradbus
