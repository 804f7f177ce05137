#include "common/large_vector.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <vector>

namespace gradbus {
namespace {

constexpr size_t kLarge = size_t{8} << 20;  // floats: 32 MiB

size_t resident_pages(const LargeVector<float>& values) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = values.size() * sizeof(float);
  std::vector<unsigned char> pages((bytes + page - 1) / page);
  EXPECT_EQ(mincore(const_cast<float*>(values.data()), bytes, pages.data()), 0);
  return static_cast<size_t>(
      std::ranges::count_if(pages, [](unsigned char one) { return (one & 1) != 0; }));
}

bool all_zeros(const LargeVector<float>& values) {
  return std::ranges::all_of(values, [](float value) { return value == 0; });
}

TEST(LargeVector, BeginsAsZerosOnLinesAlsoInMemoryThatWasUsed) {
  for (const size_t size : {size_t{1}, size_t{17}, size_t{4096}, (size_t{1} << 19) - 1,
                            size_t{1} << 19, (size_t{1} << 19) + 1}) {
    for (int turn = 0; turn < 3; ++turn) {
      LargeVector<float> values(size);
      EXPECT_EQ(values.size(), size);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(values.data()) % 64, 0u);
      EXPECT_TRUE(all_zeros(values)) << size << ", turn " << turn;
      std::ranges::fill(values, 1.0F);
    }
  }
}

// Clearing 1 GB at construction would block an agent's thread for longer than its peers wait.
TEST(LargeVector, TakesNoMemoryBeforeItIsWritten) {
  LargeVector<float> values(kLarge);
  EXPECT_EQ(resident_pages(values), 0u);
  values[kLarge / 2] = 1;
  EXPECT_GT(resident_pages(values), 0u);
  EXPECT_LE(resident_pages(values), 512u) << "more than a huge page";
}

TEST(LargeVector, MovesWithWhatItHas) {
  LargeVector<float> from(kLarge);
  from[3] = 5;
  const float* const at = from.data();
  LargeVector<float> to(2);
  to = std::move(from);
  EXPECT_EQ(to.data(), at);
  EXPECT_EQ(to[3], 5);
  EXPECT_TRUE(from.empty());  // NOLINT(bugprone-use-after-move): that is what is asked
  const LargeVector<float> next(std::move(to));
  EXPECT_EQ(next.data(), at);
  EXPECT_EQ(next.size(), kLarge);
}

TEST(LargeVector, WhatCannotBeIsSaid) {
  EXPECT_TRUE(LargeVector<float>(0).empty());
  EXPECT_THROW(LargeVector<float>(SIZE_MAX / 4), std::bad_alloc);
}

}  // namespace
}  // namespace gradbus
