#include "compression/kernels/statistics.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <limits>
#include <random>
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

TEST(Statistics, LargestMagnitudesByHand) {
  const float inf = std::numeric_limits<float>::infinity();
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const std::vector<float> values{1, -3, 0, -0.0F, inf, 2, nan, inf, -1e-45F};
  std::vector<uint32_t> bits(5);
  largest_magnitudes(values, 2, bits.data());
  EXPECT_THAT(bits, ElementsAre(std::bit_cast<uint32_t>(3.0F), 0, 0x7f800000, 0x7fc00000, 1));
}

// Element 16 joins lane 0: (1 + 256) there and 9 in lane 1; FLT_MAX squared is no Inf in f64.
TEST(Statistics, SumOfSquaresByHand) {
  std::vector<float> values(17);
  values[0] = 1;
  values[1] = -3;
  values[16] = 16;
  EXPECT_EQ(sum_of_squares(values), 266);
  const double large = std::numeric_limits<float>::max();
  EXPECT_EQ(sum_of_squares(std::vector<float>{std::numeric_limits<float>::max()}), large * large);
}

TEST(Statistics, EachTargetEqualsScalar) {
  for (const size_t count : {0, 1, 15, 16, 17, 63, 64, 65, 511, 513, 2048, 2051})
    for (const size_t bucket : {32, 96, 4096}) {
      const std::vector<float> values = any_values(count + 1);
      const std::span<const float> run = std::span(values).subspan(1);
      std::vector<float> finite(run.begin(), run.end());
      for (float& value : finite)
        if (value - value != 0) value = 0.1F;
      std::vector<uint32_t> expected(count / bucket + 1);
      largest_magnitudes_scalar(run, bucket, expected.data());
      on_each_target([&] {
        std::vector<uint32_t> bits(expected.size());
        largest_magnitudes(run, bucket, bits.data());
        EXPECT_EQ(bits, expected) << count;
        EXPECT_EQ(sum_of_squares(finite), sum_of_squares_scalar(finite)) << count;
      });
    }
}

}  // namespace
}  // namespace gradbus
