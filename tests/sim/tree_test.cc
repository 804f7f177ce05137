// Trees are trees: everybody but the root has one parent, is that parent's child, and reaches the
// root in as many hops as the shape promises.

#include "data_plane/collectives/tree.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <vector>

namespace gradbus {
namespace {

constexpr Tree::Shape kShapes[] = {Tree::Shape::kAhead, Tree::Shape::kBehind,
                                   Tree::Shape::kBinomial, Tree::Shape::kStar};

uint32_t depth(const Tree& tree, uint32_t agent) {
  uint32_t hops = 0;
  for (; agent != tree.root && hops <= tree.agents; ++hops) agent = *tree.parent(agent);
  return hops;
}

uint32_t deepest(const Tree& tree) {
  uint32_t hops = 0;
  for (uint32_t agent = 0; agent < tree.agents; ++agent) hops = std::max(hops, depth(tree, agent));
  return hops;
}

TEST(Tree, ParentsAndChildrenAgree) {
  for (const Tree::Shape shape : kShapes) {
    for (uint32_t agents = 2; agents <= 33; ++agents) {
      for (uint32_t root = 0; root < agents; ++root) {
        const Tree tree{.shape = shape, .root = root, .agents = agents};
        ASSERT_FALSE(tree.parent(root).has_value());
        std::vector<uint32_t> parents(agents, 0);
        for (uint32_t agent = 0; agent < agents; ++agent) {
          for (uint32_t i = 0; i < tree.children(agent); ++i) {
            const uint32_t child = tree.child(agent, i);
            ASSERT_LT(child, agents);
            ASSERT_EQ(tree.parent(child), agent);
            ++parents[child];
          }
        }
        for (uint32_t agent = 0; agent < agents; ++agent)
          ASSERT_EQ(parents[agent], agent == root ? 0u : 1u);
      }
    }
  }
}

TEST(Tree, Depths) {
  for (uint32_t agents = 2; agents <= 33; ++agents) {
    for (uint32_t root = 0; root < agents; ++root) {
      using enum Tree::Shape;
      EXPECT_EQ(deepest({.shape = kAhead, .root = root, .agents = agents}), agents - 1);
      EXPECT_EQ(deepest({.shape = kBehind, .root = root, .agents = agents}), agents - 1);
      EXPECT_EQ(deepest({.shape = kStar, .root = root, .agents = agents}), 1u);
      const auto log = static_cast<uint32_t>(std::bit_width(agents - 1));  // ceil(log2(agents))
      EXPECT_LE(deepest({.shape = kBinomial, .root = root, .agents = agents}), log);
    }
  }
}

TEST(Tree, KnownOnes) {
  const Tree ahead{.shape = Tree::Shape::kAhead, .root = 2, .agents = 4};
  EXPECT_EQ(ahead.child(2, 0), 3u);
  EXPECT_EQ(ahead.child(3, 0), 0u);
  EXPECT_EQ(ahead.children(1), 0u);
  const Tree behind{.shape = Tree::Shape::kBehind, .root = 2, .agents = 4};
  EXPECT_EQ(behind.parent(1), 2u);  // sums flow along the ring: 3, 0, 1, 2
  EXPECT_EQ(behind.parent(0), 1u);
  EXPECT_EQ(behind.parent(3), 0u);
  const Tree binomial{.shape = Tree::Shape::kBinomial, .root = 1, .agents = 6};
  EXPECT_EQ(binomial.children(1), 3u);  // 2, 3 and 5 count 1, 2 and 4 from the root
  EXPECT_EQ(binomial.child(1, 2), 5u);
  EXPECT_EQ(binomial.parent(4), 3u);
  EXPECT_EQ(binomial.parent(0), 5u);
  const Tree pair{.shape = Tree::Shape::kPair, .root = 1, .agents = 4, .leaf = 3};
  EXPECT_EQ(pair.parent(3), 1u);
  EXPECT_EQ(pair.child(1, 0), 3u);
  EXPECT_FALSE(pair.has(0));
  EXPECT_EQ(pair.children(0) + pair.children(2) + pair.children(3), 0u);
}

}  // namespace
}  // namespace gradbus
