// Rank layout against the definition: consecutive ranks, blocks filled in order.
#include "cli/launch/rank_layout.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

namespace gradbus {
namespace {

using ::testing::HasSubstr;

std::vector<RankPlace> places(int ranks, std::vector<int> slots) {
  return lay_out_ranks(ranks, slots).take();
}

TEST(RankLayout, FillsBlocksInOrder) {
  EXPECT_EQ(places(5, {2, 1, 4}),
            (std::vector<RankPlace>{{0, 0, 0}, {1, 0, 1}, {2, 1, 0}, {3, 2, 0}, {4, 2, 1}}));
}

TEST(RankLayout, LaterBlocksMayStayEmpty) {
  EXPECT_EQ(places(1, {1, 1}), (std::vector<RankPlace>{{0, 0, 0}}));
}

TEST(RankLayout, MoreRanksThanSlots) {
  const auto layout = lay_out_ranks(5, std::vector<int>{2, 2});
  ASSERT_FALSE(layout.ok());
  EXPECT_THAT(layout.status().message(), HasSubstr("5 ranks do not fit into 4 slots"));
}

TEST(RankLayout, MoreRanksThanAnAgentServes) {
  EXPECT_TRUE(lay_out_ranks(128, std::vector<int>{128}).ok());
  const auto layout = lay_out_ranks(129, std::vector<int>{200});
  ASSERT_FALSE(layout.ok());
  EXPECT_THAT(layout.status().message(), HasSubstr("at most 128"));
}

TEST(EvenBlocks, DifferByOneAtMostAndHoldAll) {
  for (int ranks = 1; ranks <= 40; ++ranks) {
    for (int agents = 1; agents <= ranks; ++agents) {
      const std::vector<int> blocks = even_blocks(ranks, agents);
      ASSERT_EQ(static_cast<int>(blocks.size()), agents);
      EXPECT_EQ(std::accumulate(blocks.begin(), blocks.end(), 0), ranks);
      EXPECT_LE(blocks.front() - blocks.back(), 1);
      EXPECT_TRUE(std::is_sorted(blocks.rbegin(), blocks.rend()));
      EXPECT_GE(blocks.back(), 1);
    }
  }
}

}  // namespace
}  // namespace gradbus
