// powersgd: what algorithm 1 of Vogels et al. 2019 gives for matrices whose answer is known.
#include "compression/codecs/powersgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "tests/unit/compression/linear_exchange.h"

namespace gradbus {
namespace {

using testing::Each;
using testing::FloatNear;
using testing::Pointwise;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();

Floats outer(const Floats& left, const Floats& right) {
  Floats matrix;
  for (const float l : left)
    for (const float r : right) matrix.push_back(l * r);
  return matrix;
}

Floats sum_of(const Floats& a, const Floats& b) {
  Floats sum = a;
  for (size_t i = 0; i < b.size(); ++i) sum[i] += b[i];
  return sum;
}

Floats numbers(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  Floats values(count);
  for (float& value : values) value = normal(random);
  return values;
}

double norm(const Floats& values) {
  double squares = 0;
  for (const float value : values) squares += static_cast<double>(value) * value;
  return std::sqrt(squares);
}

// One column holds a matrix of rank 1 exactly, whatever Q is: P is its left vector, normalised.
TEST(PowerSgd, RankOneIsExact) {
  const Floats matrix = outer({1, -2, 3, 0.5F, 4}, {2, 1, -1});
  LinearExchange exchange("powersgd:rank=1", 1, {.count_max = 15, .rows = 5, .columns = 3});
  EXPECT_EQ(exchange.codec(0).vector_elements(0), 5u);
  EXPECT_EQ(exchange.codec(0).vector_elements(1), 3u);
  EXPECT_THAT(exchange.run({matrix}), Pointwise(FloatNear(1e-5F), matrix));
  EXPECT_THAT(exchange.residual(0), Each(FloatNear(0, 1e-5F)));
}

// Two agents, rank 1 each: their sum has rank 2.
TEST(PowerSgd, SumsOverAgents) {
  const Floats first = outer({1, 2, 3, 4}, {1, -1, 2, 0, 5});
  const Floats second = outer({2, -1, 0, 1}, {3, 1, 1, -2, 1});
  LinearExchange exchange("powersgd:rank=2", 2, {.count_max = 20, .rows = 4, .columns = 5});
  Floats mean = sum_of(first, second);
  for (float& value : mean) value *= 0.5F;
  EXPECT_THAT(exchange.run({first, second}, 0.5F), Pointwise(FloatNear(1e-5F), mean));
}

// Rank 2 with a rank of 1, time and again: the power iteration turns to the larger singular value,
// 6 = |(0, 3)| |(2, 0)|, so the smaller one, 1, is what remains.
TEST(PowerSgd, WarmStartFindsTheLargestSingularVector) {
  const Floats large = outer({0, 3}, {2, 0, 0});
  const Floats small = outer({1, 0}, {0, 0, 1});
  LinearExchange exchange("powersgd:rank=1", 1, {.count_max = 6, .rows = 2, .columns = 3});
  Floats values;
  for (int round = 0; round < 12; ++round) {
    values = exchange.run({sum_of(large, small)});
    std::fill(exchange.residual(0).begin(), exchange.residual(0).end(), 0.0F);
  }
  EXPECT_THAT(values, Pointwise(FloatNear(1e-4F), large));
}

// residual 0 + residual 1 + values = gradient 0 + gradient 1, over odd shapes and all tile edges.
TEST(PowerSgd, ResidualsAndValuesKeepTheSum) {
  const CodecShape shapes[] = {{1, 1, 1},         {7, 7, 1},      {7, 1, 7},    {35, 5, 7},
                               {513 * 3, 3, 513}, {1030, 2, 515}, {1000, 1, 0}, {4097, 1, 0}};
  for (const CodecShape& shape : shapes) {
    for (const char* text : {"powersgd:rank=1", "powersgd:rank=3", "powersgd:rank=64"}) {
      SCOPED_TRACE(testing::Message() << text << " " << shape.count_max);
      LinearExchange exchange(text, 2, shape);
      for (uint32_t round = 0; round < 2; ++round) {
        const Floats first = numbers(shape.count_max, 2 * round);
        const Floats second = numbers(shape.count_max, 2 * round + 1);
        const Floats before = sum_of(exchange.residual(0), exchange.residual(1));
        const Floats values = exchange.run({first, second});
        const Floats after = sum_of(exchange.residual(0), exchange.residual(1));
        EXPECT_THAT(sum_of(after, values),
                    Pointwise(FloatNear(1e-4F), sum_of(before, sum_of(first, second))));
      }
    }
  }
}

// Full rank sends everything; so 64 of an 8 x 8 matrix's, which has but 8.
TEST(PowerSgd, FullRankIsNearlyExact) {
  const Floats matrix = numbers(64, 1);
  LinearExchange exchange("powersgd:rank=64", 1, {.count_max = 64, .rows = 8, .columns = 8});
  EXPECT_EQ(exchange.codec(0).vector_elements(0), 64u);
  EXPECT_THAT(exchange.run({matrix}), Pointwise(FloatNear(1e-3F), matrix));
}

// With error feedback a constant gradient arrives in the mean, whatever its rank.
TEST(PowerSgd, FeedbackDeliversEverything) {
  const Floats matrix = numbers(20 * 30, 5);
  LinearExchange exchange("powersgd:rank=2", 1, {.count_max = 600, .rows = 20, .columns = 30});
  Floats total(600);
  for (int round = 0; round < 400; ++round) total = sum_of(total, exchange.run({matrix}));
  for (size_t i = 0; i < 600; ++i) total[i] = total[i] / 400 - matrix[i];
  EXPECT_LT(norm(total), 0.05 * norm(matrix));
}

// A vector is the most square matrix there is, here 4 x 4, zeros behind its 13 elements.
TEST(PowerSgd, SeesAVectorAsASquare) {
  LinearExchange exchange("powersgd:rank=1", 1, {.count_max = 13});
  EXPECT_EQ(exchange.codec(0).vector_elements(0), 4u);
  EXPECT_EQ(exchange.codec(0).vector_elements(1), 4u);
  Floats row(13);
  for (size_t i = 8; i < 12; ++i) row[i] = static_cast<float>(i);
  EXPECT_THAT(exchange.run({row}), Pointwise(FloatNear(1e-4F), row));
}

TEST(PowerSgd, ZerosAndNothing) {
  LinearExchange nothing("powersgd", 2, {.count_max = 0});
  EXPECT_EQ(nothing.codec(0).vector_elements(0), 0u);
  EXPECT_EQ(nothing.run({{}, {}}), Floats());
  LinearExchange zeros("powersgd:rank=1", 1, {.count_max = 6, .rows = 2, .columns = 3});
  EXPECT_THAT(zeros.run({Floats(6)}), Each(0));
  const Floats matrix = outer({1, 2}, {1, 2, 3});  // Q was 0 then: it must not stay so
  EXPECT_THAT(zeros.run({matrix}), Pointwise(FloatNear(1e-5F), matrix));
}

// A matrix of rank 1 with two columns: the second of P is noise, must not be blown up, and must
// come back when the matrix gets a second direction.
TEST(PowerSgd, AColumnWithoutUseComesBack) {
  const Floats one = outer({1, 2, 3}, {1, 1, 2});
  const Floats two = sum_of(one, outer({0, 1, -1}, {4, -2, 0}));
  LinearExchange exchange("powersgd:rank=2", 1, {.count_max = 9, .rows = 3, .columns = 3});
  EXPECT_THAT(exchange.run({one}), Pointwise(FloatNear(1e-5F), one));
  EXPECT_THAT(exchange.run({two}), Pointwise(FloatNear(1e-4F), two));
}

// Three columns more than needed: what Gram-Schmidt leaves of them is rounding.
TEST(PowerSgd, NoiseIsNotAColumn) {
  const Floats matrix = outer(numbers(301, 1), numbers(97, 2));
  LinearExchange exchange("powersgd:rank=4", 1, {301 * 97, 301, 97});
  for (int round = 0; round < 4; ++round) {
    const Floats values = exchange.run({matrix});
    EXPECT_THAT(values, Pointwise(FloatNear(1e-4F), matrix)) << round;
    exchange.residual(0) = Floats(matrix.size());
  }
}

// P is 3e38 q, |q| < 1, of four equal rows; Q would be 6e38. The next round begins afresh.
TEST(PowerSgd, RecoversFromOverflowInQ) {
  LinearExchange exchange("powersgd:rank=1", 1, {.count_max = 4, .rows = 4, .columns = 1});
  EXPECT_FALSE(std::isfinite(exchange.run({Floats(4, 3e38F)})[0]));
  EXPECT_THAT(exchange.residual(0), Each(0));
  EXPECT_THAT(exchange.run({Floats(4, 2)}), Each(FloatNear(2, 1e-5F)));
}

TEST(PowerSgd, NotFiniteGetsThroughAndNothingKeepsIt) {
  const Floats matrix = outer({1, 2, 3}, {1, 1, 2});
  for (const float odd : {kInf, -kInf, std::nanf(""), std::numeric_limits<float>::max()}) {
    LinearExchange exchange("powersgd:rank=1", 2, {.count_max = 9, .rows = 3, .columns = 3});
    exchange.run({matrix, numbers(9, 1)});
    const Floats kept = exchange.residual(1);
    const Floats bad = {1, odd, 1, -odd, odd, 1, 1, 1, 1};
    const Floats values = exchange.run({bad, matrix});
    if (!std::isfinite(odd)) {
      EXPECT_TRUE(std::isnan(values[0]));
      EXPECT_EQ(exchange.residual(1), kept);
    }
    for (size_t agent = 0; agent < 2; ++agent) {
      for (const float value : exchange.residual(agent)) EXPECT_TRUE(std::isfinite(value)) << odd;
      exchange.residual(agent) = Floats(9);
    }
    EXPECT_THAT(exchange.run({matrix, matrix}, 0.5F), Pointwise(FloatNear(1e-4F), matrix));
  }
}

}  // namespace
}  // namespace gradbus
