// blocktopk: two agents, blocks of 16, worked by hand.
#include "compression/codecs/blocktopk.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numeric>

#include "tests/unit/compression/linear_exchange.h"

namespace gradbus {
namespace {

using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();

// `blocks` blocks of 16, all elements of a block alike.
Floats in_blocks(std::initializer_list<float> blocks) {
  Floats values;
  for (const float block : blocks) values.insert(values.end(), 16, block);
  return values;
}

// Norms 16 * {1, 2, 5, 0} and 16 * {4, 2, 1, 0}: sums 16 * {5, 4, 6, 0}. Half of the blocks: 2, 0.
TEST(BlockTopK, SendsTheBlocksWithTheLargestSummedNorms) {
  LinearExchange exchange("blocktopk:block=16,ratio=0.5", 2, {.count_max = 64});
  EXPECT_EQ(exchange.codec(0).vector_elements(0), 4u);
  EXPECT_EQ(exchange.codec(0).vector_elements(1), 32u);
  const Floats first = in_blocks({1, -2, 5, 0});
  const Floats second = in_blocks({-4, 2, 1, 0});
  EXPECT_EQ(exchange.run({first, second}, 0.5F), in_blocks({-1.5F, 0, 3, 0}));
  EXPECT_EQ(exchange.residual(0), in_blocks({0, -2, 0, 0}));
  EXPECT_EQ(exchange.residual(1), in_blocks({0, 2, 0, 0}));
}

TEST(BlockTopK, TiesGoToTheLowerIndex) {
  LinearExchange exchange("blocktopk:block=16,ratio=0.5", 1, {.count_max = 64});
  EXPECT_EQ(exchange.run({in_blocks({1, 3, -3, 3})}), in_blocks({0, 3, -3, 0}));
}

// The L1 norm of {3, 3, 0...} is 6, larger than 5; its L2 norm would be smaller.
TEST(BlockTopK, TakesTheL1Norm) {
  LinearExchange exchange("blocktopk:block=16,ratio=0.5", 1, {.count_max = 32});
  Floats gradient(32);
  gradient[0] = 5;
  gradient[16] = -3;
  gradient[17] = 3;
  const Floats values = exchange.run({gradient});
  EXPECT_EQ(values[0], 0);
  EXPECT_EQ(values[16], -3);
  EXPECT_EQ(values[17], 3);
}

TEST(BlockTopK, TheLastBlockMayBeShort) {
  LinearExchange exchange("blocktopk:block=16,ratio=0.5", 1, {.count_max = 17});
  Floats gradient(17, 0.1F);
  gradient[16] = 9;
  const Floats values = exchange.run({gradient});
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), 0.0F), 9);
  EXPECT_EQ(exchange.residual(0)[15], 0.1F);
  EXPECT_EQ(exchange.residual(0)[16], 0);
}

TEST(BlockTopK, ZerosLieBehindTheLastBlock) {
  BlockTopK codec(17, 16, 1, DType::kF32);
  const Floats gradient(17, 1);
  const Floats norms{16, 1};
  Floats sent(32, 7);
  codec.project(1, {.gradient = gradient}, 1, std::as_bytes(std::span(norms)),
                std::as_writable_bytes(std::span(sent)));
  Floats wanted(32);
  std::fill(wanted.begin(), wanted.begin() + 17, 1.0F);
  EXPECT_EQ(sent, wanted);
}

TEST(BlockTopK, BlocksMayBeLongerThanThePartitionOrAPiece) {
  LinearExchange small("blocktopk:block=1024", 1, {.count_max = 3});
  EXPECT_EQ(small.codec(0).vector_elements(1), 3u);
  EXPECT_EQ(small.run({{1, 2, 3}}), (Floats{1, 2, 3}));
  LinearExchange large("blocktopk:block=5000,ratio=0.5", 1, {.count_max = 10000});
  Floats gradient(10000, 1);
  std::fill(gradient.begin() + 5000, gradient.end(), 2.0F);
  Floats wanted(10000);
  std::fill(wanted.begin() + 5000, wanted.end(), 2.0F);
  EXPECT_EQ(large.run({gradient}), wanted);
}

TEST(BlockTopK, NothingIsSentOfNothing) {
  LinearExchange exchange("blocktopk", 2, {.count_max = 0});
  EXPECT_EQ(exchange.codec(0).vector_elements(0), 0u);
  EXPECT_EQ(exchange.codec(0).vector_elements(1), 0u);
  EXPECT_EQ(exchange.run({{}, {}}), Floats());
}

// 1 + 2^-12 is 1 in f16; Inf is what f16 makes of 1e5, so that element's residual stays.
TEST(BlockTopK, InF16TheResidualHasTheRounding) {
  LinearExchange exchange("blocktopk:block=16,ratio=1,values=fp16", 1, {.count_max = 16});
  Floats gradient(16, 1 + 0x1p-12F);
  gradient[3] = 1e5F;
  const Floats values = exchange.run({gradient});
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[3], kInf);
  EXPECT_EQ(exchange.residual(0)[0], 0x1p-12F);
  EXPECT_EQ(exchange.residual(0)[3], 0);
}

TEST(BlockTopK, NotFiniteGetsThroughAndResidualsStay) {
  for (const float odd : {kInf, -kInf, std::nanf("")}) {
    LinearExchange exchange("blocktopk:block=16,ratio=0.25", 2, {.count_max = 64});
    const Floats first = in_blocks({1, 1, 1, 100});
    exchange.run({first, first});
    const Floats kept = exchange.residual(0);
    Floats bad = first;
    bad[20] = odd;
    EXPECT_FALSE(std::isfinite(exchange.run({bad, first})[20])) << odd;
    EXPECT_EQ(exchange.residual(0), kept);
    EXPECT_EQ(exchange.residual(1), kept);
  }
}

TEST(BlockTopK, ANormThatOverflowsIsALargeOne) {
  LinearExchange exchange("blocktopk:block=16,ratio=0.5", 1, {.count_max = 32});
  const float most = std::numeric_limits<float>::max();
  EXPECT_EQ(exchange.run({in_blocks({1, most})}), in_blocks({0, most}));
  EXPECT_EQ(exchange.residual(0), in_blocks({1, 0}));
}

// What does not go now goes later: three rounds of ratio 1/3 send everything.
TEST(BlockTopK, ResidualsAreSentLater) {
  LinearExchange exchange("blocktopk:block=16,ratio=0.3", 1, {.count_max = 48});
  const Floats zeros(48);
  Floats total = exchange.run({in_blocks({1, 2, 3})});
  for (int round = 0; round < 2; ++round) {
    const Floats values = exchange.run({zeros});
    for (size_t i = 0; i < 48; ++i) total[i] += values[i];
  }
  EXPECT_EQ(total, in_blocks({1, 2, 3}));
}

}  // namespace
}  // namespace gradbus
