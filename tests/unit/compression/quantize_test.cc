// quantize(), dequantize() and packing: each SIMD target against the scalar form, bit for bit, and
// the scalar form against values by hand.
#include "compression/kernels/quantize/quantize.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "common/kernels/half.h"
#include "compression/kernels/quantize/pack.h"
#include "compression/kernels/vector/dither.h"
#include "compression/kernels/vector/statistics.h"
#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using testing::ElementsAre;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

const CodeFormat kFormats[] = {
    {.bits = 8, .levels = 127},
    {.bits = 4, .levels = 7},
    {.bits = 2, .levels = 1},
    {.stochastic = true, .bits = 8, .levels = 127},
    {.stochastic = true, .bits = 4, .levels = 3},
    {.stochastic = true, .bits = 2, .levels = 1},
    {.stochastic = true, .clipped = true, .bits = 2, .levels = 1},
    {.kind = CodeKind::kE4m3},
    {.kind = CodeKind::kE5m2},
    {.kind = CodeKind::kNatural},
};

float top_of(const CodeFormat& format) {
  switch (format.kind) {
    case CodeKind::kLevels: return static_cast<float>(format.levels);
    case CodeKind::kE4m3: return 448;
    case CodeKind::kE5m2: return 57344;
    case CodeKind::kNatural: return 1;
  }
  return 0;
}

// Magnitudes over all of the range of the codes, halves (ties) among them, and zeros of both signs.
std::vector<float> values_up_to(float top, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const auto uniform = static_cast<float>(static_cast<int64_t>(random())) * 0x1p-63F;
    const uint64_t kind = random() % 8;
    value = uniform * top;
    if (kind == 0) value = std::copysign(0.0F, uniform);
    if (kind == 1) value = std::nearbyint(uniform * top * 2) / 2;
    if (kind == 2) value = std::ldexp(uniform * top, -static_cast<int>(random() % 40));
    if (kind == 3) value = std::ldexp(uniform, -static_cast<int>(random() % 149));
    if (kind == 4) value = std::copysign(top, uniform);
  }
  return values;
}

struct Quantized {
  std::vector<uint8_t> codes;
  std::vector<uint32_t> residual;  // bits, so that equal means the same bits

  bool operator==(const Quantized&) const = default;
};

using QuantizeKernel = void (*)(const CodeFormat&, const QuantizePiece&);

// With vectors at an offset, of an odd first element and buckets of 96 of which one is not finite.
Quantized run(QuantizeKernel kernel, const CodeFormat& format, const std::vector<float>& values,
              size_t offset, bool feedback) {
  const size_t count = values.size() - offset;
  std::vector<BucketScale> scales(count / 96 + 1, {0.37F, 1});
  if (scales.size() > 2) scales[1] = {kNan, 0};
  std::vector<uint8_t> codes(offset + count + 1, 0xa5);
  std::vector<float> residual(offset + count + 1, 5.0F);
  kernel(format, {.values = values.data() + offset,
                  .count = count,
                  .bucket = 96,
                  .scales = scales.data(),
                  .seed = 0x123456789abcdef,
                  .first = 4096 + 32,
                  .codes = codes.data() + offset,
                  .residual = feedback ? residual.data() + offset : nullptr});
  Quantized result{.codes = codes, .residual = {}};
  for (const float value : residual) result.residual.push_back(std::bit_cast<uint32_t>(value));
  return result;
}

TEST(Quantize, EachTargetEqualsScalar) {
  for (const CodeFormat& format : kFormats) {
    for (const size_t count : {0, 1, 15, 31, 32, 33, 63, 95, 96, 97, 300, 1027}) {
      const size_t offset = count % 4;
      const auto values = values_up_to(top_of(format), count + offset, count);
      for (const bool feedback : {false, true}) {
        const Quantized expected = run(quantize_scalar, format, values, offset, feedback);
        on_each_target([&] {
          EXPECT_EQ(run(quantize, format, values, offset, feedback), expected)
              << "kind " << static_cast<int>(format.kind) << " bits " << format.bits << " count "
              << count;
        });
      }
    }
  }
}

// What quantize() takes ahead of 4 buckets of 96, of which one that is coded and another that is
// taken are not finite; null where it is not asked for.
struct Taken {
  Quantized coded;
  std::vector<uint32_t> largest;
  std::vector<double> squares;

  bool operator==(const Taken&) const = default;
};

template <typename Kernel>
Taken run_taking(const Kernel& kernel, const CodeFormat& format, bool feedback, int asked) {
  constexpr size_t kCount = 384;
  const auto values = values_up_to(top_of(format), kCount, 1);
  auto next = values_up_to(3, kCount + 1, 2);
  next[300] = std::numeric_limits<float>::infinity();
  const std::vector<float> kept(kCount, 0.25F);
  std::vector<float> v(kCount);
  std::vector<BucketScale> scales(4, {0.37F, 1});
  scales[2] = {kNan, 0};
  std::vector<uint8_t> codes(kCount);
  std::vector<float> residual(kCount, 5.0F);
  Taken result{.coded = {}, .largest = std::vector<uint32_t>(4, 9), .squares = {9, 9, 9, 9}};
  const QuantizePiece piece{.values = values.data(),
                            .count = kCount,
                            .bucket = 96,
                            .scales = scales.data(),
                            .seed = 7,
                            .first = 64,
                            .codes = codes.data(),
                            .residual = feedback ? residual.data() : nullptr};
  kernel(format, piece,
         NextBlockStatistics{.run = {.gradient = next.data() + 1,
                                     .kept = feedback ? kept.data() : nullptr,
                                     .count = kCount,
                                     .bucket = 96,
                                     .v = v.data()},
                             .largest = (asked & 1) != 0 ? result.largest.data() : nullptr,
                             .squares = (asked & 2) != 0 ? result.squares.data() : nullptr});
  result.coded.codes = codes;
  for (const float value : residual)
    result.coded.residual.push_back(std::bit_cast<uint32_t>(value));
  for (const float value : v) result.coded.residual.push_back(std::bit_cast<uint32_t>(value));
  return result;
}

TEST(Quantize, NextBlockStatisticsAreThoseOfOneBlock) {
  const auto one_by_one = [](const CodeFormat& format, const QuantizePiece& piece,
                             const NextBlockStatistics& ahead) {
    quantize_scalar(format, piece);
    take_statistics_scalar(ahead.run, ahead.largest, ahead.squares);
  };
  const auto at_once = [](const CodeFormat& format, const QuantizePiece& piece,
                          const NextBlockStatistics& ahead) { quantize(format, piece, ahead); };
  for (const CodeFormat& format : kFormats) {
    for (const bool feedback : {false, true}) {
      for (const int asked : {1, 2, 3}) {
        const Taken expected = run_taking(one_by_one, format, feedback, asked);
        on_each_target([&] {
          EXPECT_EQ(run_taking(at_once, format, feedback, asked), expected)
              << "kind " << static_cast<int>(format.kind) << " bits " << format.bits << " asked "
              << asked;
        });
      }
    }
  }
}

std::vector<uint32_t> run(void (*kernel)(const CodeFormat&, const DequantizePiece&),
                          const CodeFormat& format, size_t count, size_t offset, bool add) {
  std::vector<uint8_t> codes(offset + count);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<uint8_t>(i * 37 + 1);
  std::vector<float> factors(count / 96 + 1, 0.37F);
  std::vector<float> to(offset + count + 1, 0.7F);
  kernel(format, {.codes = codes.data() + offset,
                  .count = count,
                  .bucket = 96,
                  .factors = factors.data(),
                  .to = to.data() + offset,
                  .add = add});
  std::vector<uint32_t> bits;
  for (const float value : to) bits.push_back(std::bit_cast<uint32_t>(value));
  return bits;
}

TEST(Dequantize, EachTargetEqualsScalar) {
  for (const CodeFormat& format : kFormats)
    for (const size_t count : {0, 1, 7, 8, 15, 33, 95, 97, 259, 1027})
      for (const bool add : {false, true}) {
        const auto expected = run(dequantize_scalar, format, count, count % 4, add);
        on_each_target([&] {
          EXPECT_EQ(run(dequantize, format, count, count % 4, add), expected)
              << "kind " << static_cast<int>(format.kind) << " count " << count;
        });
      }
}

std::vector<float> decoded(const CodeFormat& format, const std::vector<uint8_t>& codes) {
  const float factor = 1;
  std::vector<float> to(codes.size());
  dequantize_scalar(format, {.codes = codes.data(),
                             .count = codes.size(),
                             .bucket = 256,
                             .factors = &factor,
                             .to = to.data()});
  return to;
}

std::vector<uint8_t> coded(const CodeFormat& format, const std::vector<float>& values,
                           uint64_t seed = 0) {
  const BucketScale scale{1, 1};
  std::vector<uint8_t> codes(values.size());
  quantize_scalar(format, {.values = values.data(),
                           .count = values.size(),
                           .bucket = 4096,
                           .scales = &scale,
                           .seed = seed,
                           .codes = codes.data()});
  return codes;
}

// code = 128 + level, ties to even: -63.5 is -64, 0.5 is 0, 1.5 is 2; 130 is clamped.
TEST(Quantize, LevelsByHand) {
  EXPECT_THAT(coded({.levels = 127}, {127, -63.5F, 0.5F, 1.5F, -2.5F, 130, -130}),
              ElementsAre(255, 64, 128, 130, 126, 255, 1));
}

// 1 has exponent field 7; 1.0625 ties between 1 and 1.125, 2^-10 between 0 and 2^-9, 3 * 2^-10
// between 2^-9 and 2^-8: the even mantissa wins. 2^-6 - 2^-10 rounds up to the first normal.
TEST(Quantize, E4m3ByHand) {
  EXPECT_THAT(coded({.kind = CodeKind::kE4m3},
                    {448, 1, -1.0625F, 0x1p-9F, 0x1p-10F, 0x3p-10F, 0x1p-6F - 0x1p-10F, -0.0F}),
              ElementsAre(0x7e, 0x38, 0xb8, 0x01, 0x00, 0x02, 0x08, 0x80));
}

// 1 has exponent field 15; 1.125 ties between 1 and 1.25.
TEST(Quantize, E5m2ByHand) {
  EXPECT_THAT(coded({.kind = CodeKind::kE5m2}, {57344, 1, 1.125F, -0x1p-16F, 0x1p-17F, 0x3p-17F}),
              ElementsAre(0x7b, 0x3c, 0x3c, 0x81, 0x00, 0x02));
}

// e5m2 is the upper byte of f16; e4m3 with another bias is f16 too: an exponent 8 further up.
TEST(Dequantize, Fp8IsF16CutShort) {
  for (uint32_t code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    const auto sign = static_cast<uint16_t>((code & 0x80) << 8);
    const uint32_t magnitude = code & 0x7f;
    const auto e4m3 = static_cast<uint16_t>(sign | magnitude << 7);
    EXPECT_EQ(decoded({.kind = CodeKind::kE4m3}, {byte})[0], f32_from_f16(e4m3) * 256) << code;
    if (magnitude > 0x7b) continue;  // Inf and NaN, which are never sent
    const auto e5m2 = static_cast<uint16_t>(sign | magnitude << 8);
    EXPECT_EQ(decoded({.kind = CodeKind::kE5m2}, {byte})[0], f32_from_f16(e5m2)) << code;
  }
}

// Each code is the nearest one to its own value.
TEST(Quantize, Fp8TakesItsOwnValuesBack) {
  for (const CodeFormat& format : {kFormats[7], kFormats[8]})
    for (uint32_t code = 0; code < 256; ++code) {
      const auto byte = static_cast<uint8_t>(code);
      const float value = decoded(format, {byte})[0];
      if (std::fabs(value) > top_of(format)) continue;
      EXPECT_EQ(coded(format, {value})[0], code);
    }
}

// The exponent field of the f32, sign in front; powers of two stay, and 2^-127 is 0 or 2^-126.
TEST(Quantize, NaturalByHand) {
  const CodeFormat natural{.kind = CodeKind::kNatural};
  for (uint64_t seed = 0; seed < 50; ++seed)
    EXPECT_THAT(coded(natural, {1, -0.5F, 0x1p-126F, 0, -0.0F}, seed),
                ElementsAre(127, 254, 1, 0, 128));
  EXPECT_THAT(decoded(natural, {127, 254, 1, 0}), ElementsAre(1, -0.5F, 0x1p-126F, 0));
}

// A mantissa of 2^-16 is half of the last random bit: of 2^18 elements 8 are expected to go up.
TEST(Quantize, NaturalDrawsTheSmallestProbability) {
  const std::vector<float> values(1 << 18, 0.5F + 0x1p-17F);
  const BucketScale scale{1, 1};
  std::vector<uint8_t> codes(values.size());
  on_each_target([&] {
    quantize({.kind = CodeKind::kNatural}, {.values = values.data(),
                                            .count = values.size(),
                                            .bucket = values.size(),
                                            .scales = &scale,
                                            .seed = 1,
                                            .codes = codes.data()});
    const auto up = std::count(codes.begin(), codes.end(), 127);
    EXPECT_GT(up, 0);
    EXPECT_LT(up, 8 + 15);
    EXPECT_EQ(up + std::count(codes.begin(), codes.end(), 126), 1 << 18);
  });
}

// Over seeds, the mean of what is decoded is the value: 4000 draws, within 5 standard errors.
void expect_unbiased(const CodeFormat& format, const std::vector<float>& values,
                     const std::vector<float>& deviations) {
  constexpr int kDraws = 4000;
  std::vector<double> sums(values.size());
  for (uint64_t seed = 0; seed < kDraws; ++seed) {
    const std::vector<float> got = decoded(format, coded(format, values, mix_u64(seed)));
    for (size_t i = 0; i < values.size(); ++i) sums[i] += got[i];
  }
  for (size_t i = 0; i < values.size(); ++i)
    EXPECT_NEAR(sums[i] / kDraws, values[i], 5 * deviations[i] / std::sqrt(kDraws)) << values[i];
}

// One of two neighbours a distance d apart with probability p: the deviation is d sqrt(p (1 - p)).
TEST(Quantize, StochasticRoundingIsUnbiased) {
  expect_unbiased({.stochastic = true, .levels = 127}, {0.1F, -0.5F, 100.75F, -126.9F, 127},
                  {0.3F, 0.5F, 0.434F, 0.3F, 0});
  expect_unbiased({.stochastic = true, .bits = 2, .levels = 1}, {0.25F, -0.9F, 1, 0},
                  {0.434F, 0.3F, 0, 0});
  expect_unbiased({.kind = CodeKind::kNatural}, {0.75F, -0.3F, 0x1p-127F},
                  {0.25F, 0.1F, 0x1p-127F});
}

// Group 2, element 6 is pair 2 * 16 + 6 = 38, and so is 16 further on.
TEST(Dither, SharesNumbersInPairs) {
  EXPECT_EQ(dither_bits({10, 3}, 70), mix_u32(10 + 38 * 3) & 0x7fff);
  EXPECT_EQ(dither_bits({10, 3}, 86), mix_u32(10 + 38 * 3) >> 17);
}

// Of 2^16 draws for each of two neighbours: means 1/2 within 5 * sqrt(1/12 / 2^16), correlations of
// neighbours, of pairs and of seeds within 5 / sqrt(2^16).
TEST(Dither, IsUniformAndUncorrelated) {
  constexpr int kDraws = 1 << 16;
  const auto uniform = [](uint64_t seed, uint32_t index) {
    return dither_bits(dither_stream(seed), index) * 0x1p-15 - 0.5;
  };
  double mean = 0, neighbours = 0, pairs = 0, seeds = 0;
  for (uint32_t i = 0; i < kDraws; ++i) {
    const uint32_t at = i / 16 * 32 + i % 16;
    const double u = uniform(3, at);
    mean += u / kDraws;
    neighbours += 12 * u * uniform(3, at + 1) / kDraws;
    pairs += 12 * u * uniform(3, at + 16) / kDraws;
    seeds += 12 * u * uniform(4, at) / kDraws;
  }
  EXPECT_NEAR(mean, 0, 0.0057);
  for (const double correlation : {neighbours, pairs, seeds}) EXPECT_NEAR(correlation, 0, 0.02);
}

TEST(Pack, ByHand) {
  const std::vector<uint8_t> nibbles{15, 5, 10, 8, 1};
  const std::vector<uint8_t> pairs{3, 0, 2, 1, 1};
  std::vector<uint8_t> packed(3);
  pack_codes(4, nibbles.data(), nibbles.size(), packed.data());
  EXPECT_THAT(packed, ElementsAre(0x5f, 0x8a, 0x01));
  packed.resize(2);
  pack_codes(2, pairs.data(), pairs.size(), packed.data());
  EXPECT_THAT(packed, ElementsAre(0x63, 0x01));  // 3 + 0 * 4 + 2 * 16 + 1 * 64
}

TEST(Pack, EachTargetEqualsScalarAndComesBack) {
  std::mt19937 random(1);
  for (const uint32_t bits : {2u, 4u})
    for (const size_t count : {0, 1, 3, 31, 64, 127, 128, 129, 1027}) {
      std::vector<uint8_t> codes(count);
      for (uint8_t& code : codes) code = static_cast<uint8_t>(random() >> (32 - bits));
      std::vector<uint8_t> expected(packed_bytes(bits, count) + 1, 0xa5);
      pack_codes_scalar(bits, codes.data(), count, expected.data());
      on_each_target([&] {
        std::vector<uint8_t> packed(expected.size(), 0xa5);
        pack_codes(bits, codes.data(), count, packed.data());
        EXPECT_EQ(packed, expected) << bits << " bits, count " << count;
        std::vector<uint8_t> back(count);
        unpack_codes(bits, packed.data(), count, back.data());
        EXPECT_EQ(back, codes) << bits << " bits, count " << count;
      });
    }
}

}  // namespace
}  // namespace gradbus
