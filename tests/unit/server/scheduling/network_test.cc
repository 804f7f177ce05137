// Costs of collectives, worked by hand from the formulas in network.h.
#include "server/scheduling/network.h"

#include <gtest/gtest.h>

namespace gradbus::scheduling {
namespace {

// a = 10 us, b = 2 ns, g = 1 ns, n = 4: L = 2, (n-1)/n = 3/4. m = 4000 bytes.
constexpr Network kFour{.nodes = 4, .alpha_us = 10, .beta_ns = 2, .gamma_ns = 1};

struct Row {
  Algorithm algorithm;
  double all_reduce_us;
  double reduce_scatter_us;
  double all_gather_us;
};

constexpr Row kRows[] = {
    // 3 a + 3/4 m (b+g) = 30 + 9 = 39; 3 a + 3/4 m b = 30 + 6 = 36.
    {Algorithm::kRing, 75, 39, 36},
    // 2 a + the same bytes.
    {Algorithm::kHalvingDoubling, 55, 29, 26},
    // 2 (a + m (b+g)) = 20 + 24.
    {Algorithm::kRecursiveDoubling, 44, 29, 26},
    // 4 a + 2 m (2b+g) = 40 + 40; 4 a + m (2 * 3 + 1.5) = 70; 4 a + m (1.5 + 4) = 62.
    {Algorithm::kTree, 80, 70, 62},
};

TEST(NetworkCosts, FollowTheFormulas) {
  for (const Row& row : kRows) {
    const auto us = [&](CollectiveKind kind) {
      return collective_cost(kind, row.algorithm, kFour).us(4000);
    };
    const int name = static_cast<int>(row.algorithm);
    EXPECT_NEAR(us(CollectiveKind::kAllReduce), row.all_reduce_us, 1e-9) << name;
    EXPECT_NEAR(us(CollectiveKind::kReduceScatter), row.reduce_scatter_us, 1e-9) << name;
    EXPECT_NEAR(us(CollectiveKind::kAllGather), row.all_gather_us, 1e-9) << name;
  }
}

TEST(NetworkCosts, OneNodeSendsNothing) {
  EXPECT_EQ(collective_us(CollectiveKind::kAllReduce, 1e9, {.nodes = 1}), 0);
}

// Expect: log2(5) is rounded up to 3 messages, 6 for both halves.
TEST(NetworkCosts, NodesThatAreNoPowerOfTwo) {
  const Network network{.nodes = 5, .alpha_us = 1, .beta_ns = 0};
  const LinearCost cost =
      collective_cost(CollectiveKind::kAllReduce, Algorithm::kHalvingDoubling, network);
  EXPECT_EQ(cost.us(1e6), 6);
}

// Expect: few bytes go by recursive doubling, many by halving and doubling.
TEST(NetworkCosts, AutoTakesTheFastest) {
  const Network network{.nodes = 16, .alpha_us = 10, .beta_ns = 1};
  EXPECT_NEAR(collective_us(CollectiveKind::kAllReduce, 100, network), 4 * (10 + 0.1), 1e-9);
  EXPECT_NEAR(collective_us(CollectiveKind::kAllReduce, 1e8, network), 8 * 10 + 2 * 15.0 / 16 * 1e5,
              1e-6);
}

}  // namespace
}  // namespace gradbus::scheduling
