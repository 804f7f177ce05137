// The k largest, against a sort; partitions made to mislead the guess.
#include "compression/codecs/largest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

namespace gradbus {
namespace {

using testing::ElementsAre;

constexpr float kInf = std::numeric_limits<float>::infinity();

// The definition: by magnitude, then by index.
std::vector<uint32_t> sorted_largest(const std::vector<float>& values, size_t k) {
  std::vector<uint32_t> order(values.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](uint32_t a, uint32_t b) {
    return std::fabs(values[a]) > std::fabs(values[b]);
  });
  order.resize(k);
  std::sort(order.begin(), order.end());
  return order;
}

void expect_exact(const std::vector<float>& values, size_t k, uint32_t guess) {
  Largest largest(values.size(), k);
  const Selection got = largest.exactly({.gradient = values}, k, guess);
  const std::vector<uint32_t> want = sorted_largest(values, k);
  EXPECT_EQ(got.not_finite, kAllFinite);
  EXPECT_EQ(std::vector<uint32_t>(got.indices.begin(), got.indices.end()), want);
  ASSERT_EQ(got.values.size(), k);
  for (size_t i = 0; i < k; ++i) EXPECT_EQ(got.values[i], values[want[i]]);
}

// Whatever the guess, right or wrong.
void expect_exact(const std::vector<float>& values, size_t k) {
  SCOPED_TRACE(testing::Message() << "k " << k << " of " << values.size());
  for (const uint32_t guess : {0u, 1u, magnitude_key(0.5F), magnitude_key(1), magnitude_key(2),
                               magnitude_key(1e30F), kKeyInfinity, kKeyMax})
    expect_exact(values, k, guess);
}

std::vector<float> normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

TEST(KthLargestKey, EqualsASort) {
  std::mt19937 random(5);
  for (const size_t count : {1u, 2u, 3u, 17u, 1000u, 4097u, 65535u, 65536u, 70001u}) {
    std::vector<float> values(count);
    for (float& value : values)
      value = std::bit_cast<float>(static_cast<uint32_t>(random()) >> random() % 3 * 8);
    Bins bins = make_bins(count);
    std::vector<uint32_t> keys(count);
    std::transform(values.begin(), values.end(), keys.begin(), magnitude_key);
    std::sort(keys.rbegin(), keys.rend());
    for (size_t k = 1; k <= count; k += 1 + count / 50)
      EXPECT_EQ(kth_largest_key(values, k, bins), keys[k - 1]);
    EXPECT_EQ(kth_largest_key(values, count, bins), keys[count - 1]);
  }
}

TEST(Largest, OfRandomValues) {
  for (const size_t count : {1u, 2u, 100u, 2048u, 2049u, 10000u})
    for (const size_t k : {size_t{1}, count / 100, count / 3, count})
      if (k != 0) expect_exact(normal(count, 1), k);
}

TEST(Largest, OfEqualValuesTakesTheFirst) {
  for (const float value : {0.0F, -0.0F, 1.0F, 1e-42F}) {
    expect_exact(std::vector<float>(9000, value), 1);
    expect_exact(std::vector<float>(9000, value), 3000);
    expect_exact(std::vector<float>(9000, value), 9000);
  }
}

TEST(Largest, OfSortedValues) {
  std::vector<float> values(9000);
  std::iota(values.begin(), values.end(), -4500.0F);
  expect_exact(values, 90);
  std::sort(values.begin(), values.end(), [](float a, float b) { return a * a > b * b; });
  expect_exact(values, 90);
  std::reverse(values.begin(), values.end());
  expect_exact(values, 90);
}

// Few above, many at one magnitude with either sign, the rest below: ties by index.
TEST(Largest, OfAClusterAtTheEdge) {
  std::vector<float> values = normal(9000, 2);
  for (float& value : values) value = std::fabs(value) < 0.3F ? std::copysign(2.0F, value) : value;
  for (const size_t k : {100u, 1000u, 2000u, 8000u}) expect_exact(values, k);
}

TEST(Largest, MostlyZeros) {
  std::vector<float> values(9000, 0);
  for (size_t i = 0; i < values.size(); i += 1000) values[i] = static_cast<float>(i) - 4000;
  for (const size_t k : {3u, 9u, 10u, 500u}) expect_exact(values, k);
}

// v = g + r / 2 by hand: 1.5, -3, 0, 2.5; the residual holds v afterwards.
TEST(Largest, LeavesVInTheResidual) {
  const std::vector<float> gradient{1, -2, 0, 2};
  std::vector<float> residual{1, -2, 0, 1};
  Largest largest(4, 2);
  const Selection got =
      largest.exactly({.gradient = gradient, .residual = residual, .decay = 0.5F}, 2, 0);
  EXPECT_THAT(got.indices, ElementsAre(1, 3));
  EXPECT_THAT(got.values, ElementsAre(-3, 2.5F));
  EXPECT_THAT(residual, ElementsAre(1.5F, -3, 0, 2.5F));
}

// What is sent exactly may be cleared at once; the rest is v, whether the guess was right or not.
TEST(Largest, ClearsWhatItSelects) {
  const std::vector<float> gradient = normal(9000, 4);
  const std::vector<float> before(9000, 0.25F);
  std::vector<float> v = gradient;
  for (float& value : v) value += 0.125F;
  // Of the last guess cleared at once: all, too many, too few, none.
  const std::pair<uint32_t, uint32_t> guesses[] = {{0u, 0u},
                                                   {magnitude_key(2), 0u},
                                                   {kKeyMax, 0u},
                                                   {magnitude_key(1), 0u},
                                                   {magnitude_key(1), magnitude_key(1.4F)},
                                                   {magnitude_key(1), magnitude_key(2)},
                                                   {magnitude_key(1), kKeyMax}};
  for (const auto& [guess, clear_from] : guesses) {
    std::vector<float> residual = before;
    Largest largest(v.size(), 900);
    const EncodeInput input{.gradient = gradient, .residual = residual, .decay = 0.5F};
    const Selection got = largest.exactly(input, 900, guess, clear_from);
    const std::vector<uint32_t> indices(got.indices.begin(), got.indices.end());
    EXPECT_EQ(indices, sorted_largest(v, 900));
    std::vector<float> want = v;
    for (size_t i = 0; i < indices.size(); ++i) {
      EXPECT_EQ(got.values[i], v[indices[i]]);
      if (got.cleared) want[indices[i]] = 0;
    }
    EXPECT_EQ(got.cleared, guess == magnitude_key(1)) << guess;
    EXPECT_EQ(residual, want) << guess;
  }
}

// Ties at the edge are put back too.
TEST(Largest, PutsBackWhatItDrops) {
  std::vector<float> residual(9000, 1);
  Largest largest(9000, 5000);
  const Selection got = largest.exactly({.residual = residual}, 5000, 1, 1);
  EXPECT_TRUE(got.cleared);
  EXPECT_EQ(std::count(residual.begin(), residual.begin() + 5000, 0.0F), 5000);
  EXPECT_EQ(std::count(residual.begin() + 5000, residual.end(), 1.0F), 4000);
}

TEST(Largest, FindsTheFirstThatIsNotFinite) {
  for (const float bad : {kInf, -kInf, std::nanf("")}) {
    for (const uint32_t guess : {0u, kKeyInfinity - 1, kKeyInfinity, kKeyMax}) {
      for (const size_t place : {size_t{0}, size_t{2100}, size_t{19999}}) {
        std::vector<float> values = normal(20000, 3);
        values[place] = bad;
        if (place < 10000) values[place + 5] = values[place + 2048] = kInf;
        Largest largest(values.size(), 100);
        EXPECT_EQ(largest.exactly({.gradient = values}, 100, guess).not_finite, place);
        EXPECT_EQ(largest.about({.gradient = values}, 100, 1, guess).not_finite, place);
      }
    }
  }
}

// ---- DGC's rule, k = 5: enough are 4 ------------------------------------------------------------

std::vector<uint32_t> about(const std::vector<float>& values, float threshold, float lowest) {
  Largest largest(values.size(), 5);
  const Selection got = largest.about({.gradient = values}, 5, threshold, magnitude_key(lowest));
  return {got.indices.begin(), got.indices.end()};
}

const std::vector<float> kDescending{10, -9, 8, -7, 6, -5, 4, -3, 2, -1};

TEST(Largest, AboutTakesWhatReachesTheThreshold) {
  EXPECT_THAT(about(kDescending, 6, 4), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(about(kDescending, 7, 4), ElementsAre(0, 1, 2, 3));
}

// 9.5 * 0.8 = 7.6: three; * 0.8 = 6.08: four, enough.
TEST(Largest, AboutLowersTheThreshold) {
  EXPECT_THAT(about(kDescending, 9.5F, 4), ElementsAre(0, 1, 2, 3));
}

// 8 * 0.8 = 6.4 is below the lowest: four were collected, all of them are taken.
TEST(Largest, AboutStopsAtTheLowest) {
  EXPECT_THAT(about(kDescending, 8, 7), ElementsAre(0, 1, 2, 3));
}

TEST(Largest, AboutTrimsByMagnitude) {
  std::vector<float> ascending = kDescending;
  std::reverse(ascending.begin(), ascending.end());
  EXPECT_THAT(about(ascending, 3, 2), ElementsAre(5, 6, 7, 8, 9));
}

// The guess let through three, fewer than 0.8 k.
TEST(Largest, AboutIsExactWhereTheGuessWasWrong) {
  EXPECT_THAT(about(kDescending, 9, 8), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_THAT(about(std::vector<float>(10, 0.0F), 0, 0), ElementsAre(0, 1, 2, 3, 4));
}

// Ten lowerings of 100 end at 10.7: three elements are sent, as by the public code.
TEST(Largest, AboutLowersTenTimesAtMost) {
  EXPECT_THAT(about({100, 50, 11, 10, 9, 8, 7}, 100, 7), ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace gradbus
