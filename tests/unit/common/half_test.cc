// Tests the f16 and bf16 conversions against the definition of the formats, computed in double with
// libm.
#include "common/kernels/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace gradbus {
namespace {

// IEEE 754-2008 table 3.5: (-1)^s * m * 2^(e - 25), with the implicit bit for e > 0.
double value_of_f16(uint16_t half) {
  const int exponent = (half >> 10) & 0x1f;
  const int mantissa = half & 0x3ff;
  const double sign = (half & 0x8000) != 0 ? -1 : 1;
  if (exponent == 0x1f) return mantissa != 0 ? std::nan("") : sign * HUGE_VAL;
  return sign *
         (exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024 + mantissa, exponent - 25));
}

// The multiple of the unit in the last place nearest to `value` (nearbyint: ties to even).
double round_to(double value, int precision_bits, int min_exponent, double max) {
  if (std::isnan(value) || std::isinf(value) || value == 0) return value;
  const int unit = std::max(std::ilogb(value), min_exponent) - (precision_bits - 1);
  const double rounded = std::ldexp(std::nearbyint(std::ldexp(value, -unit)), unit);
  return std::abs(rounded) > max ? std::copysign(HUGE_VAL, value) : rounded;
}

double round_to_f16(float value) { return round_to(value, 11, -14, 65504); }

double round_to_bf16(float value) { return round_to(value, 8, -126, std::ldexp(255, 120)); }

void expect_same(double got, double want, float from) {
  if (std::isnan(want)) {
    EXPECT_TRUE(std::isnan(got)) << std::hexfloat << from;
  } else {
    EXPECT_EQ(got, want) << std::hexfloat << from;
    EXPECT_EQ(std::signbit(got), std::signbit(want)) << std::hexfloat << from;
  }
}

TEST(HalfTest, EveryF16WidensToItsValue) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const float wide = f32_from_f16(half);
    expect_same(wide, value_of_f16(half), wide);
  }
}

TEST(HalfTest, EveryF16SurvivesTheRoundTrip) {
  for (uint32_t bits = 0; bits <= 0xffff; ++bits) {
    const auto half = static_cast<uint16_t>(bits);
    const bool nan = (half & 0x7fff) > 0x7c00;
    EXPECT_EQ(f16_from_f32(f32_from_f16(half)), nan ? half | 0x200 : half);
  }
}

// All 2^32 floats would take minutes. A stride that is coprime to every power of two covers all
// exponents and both sides of the rounding point. The tests of ties below cover the points
// themselves.
TEST(HalfTest, F32NarrowsToTheNearest) {
  for (uint64_t bits = 0; bits <= 0xffffffff; bits += 9973) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(bits));
    expect_same(value_of_f16(f16_from_f32(value)), round_to_f16(value), value);
    expect_same(f32_from_bf16(bf16_from_f32(value)), round_to_bf16(value), value);
  }
}

TEST(HalfTest, F16MidpointsAndTheirNeighboursRoundCorrectly) {
  for (uint16_t half = 0; half < 0x7c00; ++half) {
    const double next = half == 0x7bff ? 65536 : value_of_f16(half + 1);
    const auto middle = static_cast<float>((value_of_f16(half) + next) / 2);  // exact: 12 bits
    for (const float value : {std::nextafter(middle, 0.0f), middle, std::nextafter(middle, 1e9f)}) {
      expect_same(value_of_f16(f16_from_f32(value)), round_to_f16(value), value);
      expect_same(value_of_f16(f16_from_f32(-value)), round_to_f16(-value), -value);
    }
  }
}

TEST(HalfTest, BF16MidpointsAndTheirNeighboursRoundCorrectly) {
  for (uint32_t high = 0; high < 0x7f80; ++high) {
    for (const uint32_t low : {0x7fffu, 0x8000u, 0x8001u}) {
      const auto value = std::bit_cast<float>((high << 16) | low);
      expect_same(f32_from_bf16(bf16_from_f32(value)), round_to_bf16(value), value);
      expect_same(f32_from_bf16(bf16_from_f32(-value)), round_to_bf16(-value), -value);
    }
  }
}

TEST(HalfTest, NanStaysNanEvenWhenItsPayloadIsOnlyInTheLostBits) {
  const auto nan = std::bit_cast<float>(0x7f800001);
  EXPECT_EQ(f16_from_f32(nan), 0x7e00);
  EXPECT_EQ(bf16_from_f32(nan), 0x7fc0);
  const auto negative = std::bit_cast<float>(0xffffffff);
  EXPECT_EQ(f16_from_f32(negative), 0xffff);
  EXPECT_EQ(bf16_from_f32(negative), 0xffff);
}

}  // namespace
}  // namespace gradbus
