#include "compression/kernels/vector/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <span>
#include <vector>

#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using testing::ElementsAre;

std::vector<float> any_values(size_t count) {
  std::mt19937 random(count);
  std::vector<float> values(count);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random()));
  return values;
}

StatisticsRun run_of(std::span<const float> gradient, size_t bucket) {
  return {.gradient = gradient.data(), .count = gradient.size(), .bucket = bucket};
}

TEST(Statistics, LargestMagnitudesByHand) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{1, -3, 0, -0.0F, inf, 2, nan, inf, -1e-45F};
  std::vector<uint32_t> bits(5);
  take_statistics(run_of(values, 2), bits.data(), nullptr);
  EXPECT_THAT(bits, ElementsAre(std::bit_cast<uint32_t>(3.0F), 0, 0x7f800000, 0x7fc00000, 1));
}

double sum_of_squares(std::span<const float> values) {
  double sum = 0;
  take_statistics(run_of(values, values.size()), nullptr, &sum);
  return sum;
}

// FLT_MAX squared is no Inf in f64.
TEST(Statistics, SumOfSquaresByHand) {
  std::vector<float> values(17);
  values[0] = 1;
  values[1] = -3;
  values[16] = 16;
  EXPECT_EQ(sum_of_squares(values), 266);
  const double large = std::numeric_limits<float>::max();
  EXPECT_EQ(sum_of_squares(std::vector<float>{std::numeric_limits<float>::max()}), large * large);
}

// 2^54 has neighbours 4 away. Elements 32 and 64 join its lane, where each 1 is lost; elements 16,
// 48 and 80 have a lane of their own, and their 3 count.
TEST(Statistics, SquaresHave32Lanes) {
  std::vector<float> values(96);
  values[0] = 0x1p27F;
  for (const size_t i : {32, 64, 16, 48, 80}) values[i] = 1;
  on_each_target([&] { EXPECT_EQ(sum_of_squares(values), 0x1p54 + 4); });
}

// v = 1 + 0.5 * 4 and 0 + 0.5 * -2; without a gradient -0 becomes 0, as in compensate().
TEST(Statistics, TakesWhatIsKept) {
  const std::vector<float> gradient{1, 0};
  const std::vector<float> kept{4, -2};
  std::vector<float> v(2);
  uint32_t largest = 0;
  double squares = 0;
  StatisticsRun run{.gradient = gradient.data(),
                    .kept = kept.data(),
                    .decay = 0.5F,
                    .count = 2,
                    .bucket = 32,
                    .v = v.data()};
  take_statistics(run, &largest, &squares);
  EXPECT_THAT(v, ElementsAre(3, -1));
  EXPECT_EQ(largest, std::bit_cast<uint32_t>(3.0F));
  EXPECT_EQ(squares, 10);
  const std::vector<float> none{-0.0F, 6};
  run.gradient = nullptr;
  run.kept = none.data();
  take_statistics(run, &largest, &squares);
  EXPECT_FALSE(std::signbit(v[0]));
  EXPECT_EQ(v[1], 3);
}

struct Taken {
  std::vector<uint32_t> largest;
  std::vector<double> squares;
  std::vector<float> v;
  bool operator==(const Taken&) const = default;
};

template <typename Take>
Taken taken(StatisticsRun run, const Take& take) {
  const size_t buckets = run.count / run.bucket + 1;
  Taken all{std::vector<uint32_t>(buckets), std::vector<double>(buckets),
            std::vector<float>(run.count)};
  run.v = all.v.data();
  take(run, all.largest.data(), all.squares.data());
  Taken alone = all;
  take(run, alone.largest.data(), nullptr);
  take(run, nullptr, alone.squares.data());
  EXPECT_EQ(alone, all);
  return all;
}

TEST(Statistics, EachTargetEqualsScalar) {
  for (const size_t count : {0, 1, 15, 16, 17, 63, 64, 65, 511, 513, 2048, 2051})
    for (const size_t bucket : {32, 96, 4096}) {
      std::vector<float> gradient = any_values(count + 1);
      std::vector<float> kept = any_values(count + 2);
      for (std::vector<float>* values : {&gradient, &kept})
        for (float& value : *values)
          if (!(std::abs(value) < 1e30F)) value = 0.1F;
      StatisticsRun run = run_of(std::span(gradient).subspan(1), bucket);
      StatisticsRun sum = run;
      sum.kept = kept.data() + 2;
      sum.decay = 0.9F;
      StatisticsRun rest = sum;
      rest.gradient = nullptr;
      for (const StatisticsRun& of : {run, sum, rest}) {
        const Taken expected = taken(of, take_statistics_scalar);
        on_each_target([&] { EXPECT_EQ(taken(of, take_statistics), expected) << count; });
      }
    }
}

// Inf and NaN order above numbers on each target, wherever they stand.
TEST(Statistics, EachTargetFindsWhatIsNotFinite) {
  const std::vector<float> values = any_values(2051);
  std::vector<uint32_t> expected(values.size() / 96 + 1);
  take_statistics_scalar(run_of(values, 96), expected.data(), nullptr);
  on_each_target([&] {
    std::vector<uint32_t> bits(expected.size());
    take_statistics(run_of(values, 96), bits.data(), nullptr);
    EXPECT_EQ(bits, expected);
  });
}

}  // namespace
}  // namespace gradbus
