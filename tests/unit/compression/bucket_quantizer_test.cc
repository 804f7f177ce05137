#include "compression/codecs/bucket_quantizer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <vector>

#include "compression/kernels/quantize/pack.h"
#include "compression/kernels/vector/compensate.h"
#include "compression/payload.h"
#include "compression/random.h"
#include "compression/registry.h"
#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kMax = std::numeric_limits<float>::max();

constexpr std::string_view kSpecs[] = {
    "fp8",
    "fp8:format=e5m2,block=100",
    "int8",
    "int8:rounding=stochastic,block=4097",
    "int4",
    "int4:rounding=stochastic,block=32",
    "qsgd",
    "qsgd:levels=1,bucket=0",
    "qsgd:levels=7,norm=max,bucket=3000",
    "terngrad",
    "terngrad:bound=0,bucket=0",
    "natural",
    "natural:bucket=4096",
};

std::unique_ptr<Codec> codec_of(std::string_view text, size_t count) {
  Result<CompressionSpec> spec = parse_compression(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.value().codec->make(spec.value().options, {.count_max = count});
}

std::vector<std::byte> encode(Codec& codec, const EncodeInput& input) {
  std::vector<std::byte> payload(codec.payload_bytes_max(input.count()));
  EXPECT_EQ(codec.encode(input, payload), payload.size());
  EXPECT_TRUE(codec.check(payload, input.count()).ok());
  return payload;
}

std::vector<float> decode(const Codec& codec, const std::vector<std::byte>& payload, size_t count) {
  std::vector<float> values(count, 99);
  codec.decode(payload, 1, values);
  return values;
}

std::vector<float> normal_values(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0, 0.01F);
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

void expect_bytes(const std::vector<std::byte>& payload,
                  const std::vector<unsigned char>& expected) {
  ASSERT_EQ(payload.size(), expected.size());
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_EQ(static_cast<int>(payload[i]), expected[i]) << "byte " << i;
}

// step = 127 / 127 = 1; codes 128 + 127, 128 - 64, 128 + 0.
TEST(BucketQuantizer, Int8ByHand) {
  const auto codec = codec_of("int8", 3);
  const std::vector<float> gradient{127, -63.5F, 0.25F};
  std::vector<float> residual(3);
  const auto payload = encode(*codec, {.gradient = gradient, .residual = residual});
  expect_bytes(payload,
               {4, 1, 0, 127, 3, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0x80, 0x3f, 255, 64, 128});
  EXPECT_THAT(residual, ElementsAre(0, 0.5F, 0.25F));
}

// Two buckets of 32: steps 14 / 7 = 2 and 7 / 7 = 1. 14 is code 15, -6 code 5, the rest 8 (zero);
// the last element, 7, is code 15 alone in its byte.
TEST(BucketQuantizer, Int4ByHand) {
  const auto codec = codec_of("int4:block=32", 33);
  std::vector<float> gradient(33);
  gradient[0] = 14;
  gradient[1] = -6;
  gradient[32] = 7;
  std::vector<unsigned char> expected{5, 1, 0, 7, 33, 0, 0, 0, 25, 0, 0, 0, 33, 0, 0, 0};
  for (const unsigned char byte : {0, 0, 0, 0x40, 0, 0, 0x80, 0x3f, 0x5f}) expected.push_back(byte);
  expected.insert(expected.end(), 15, 0x88);
  expected.push_back(0x0f);
  const auto payload = encode(*codec, {.gradient = gradient});
  expect_bytes(payload, expected);
  EXPECT_EQ(decode(*codec, payload, 33), gradient);
}

// step = 896 / 448 = 2: 2 is 1.0 (0x38) and -0.25 is -0.125 (exponent field 4: 0xa0).
TEST(BucketQuantizer, Fp8ByHand) {
  const auto codec = codec_of("fp8", 3);
  const std::vector<float> gradient{896, 2, -0.25F};
  const auto payload = encode(*codec, {.gradient = gradient});
  expect_bytes(payload,
               {3, 1, 0, 0, 3, 0, 0, 0, 7, 0, 0, 0, 3, 0, 0, 0, 0, 0, 0, 0x40, 0x7e, 0x38, 0xa0});
}

// |(3, 4)| = 5, one level: 3 is 0 or 5 with probability 0.6, 4 with 0.8. Over 4000 seeds the
// standard errors are 5 sqrt(0.24 / 4000) = 0.039 and 0.032.
TEST(BucketQuantizer, QsgdDrawsLevelsOfTheNorm) {
  const auto codec = codec_of("qsgd:levels=1", 2);
  const std::vector<float> gradient{3, -4};
  double sums[2] = {};
  for (uint64_t seed = 0; seed < 4000; ++seed) {
    const auto values =
        decode(*codec, encode(*codec, {.gradient = gradient, .seed = mix_u64(seed)}), 2);
    EXPECT_TRUE(values[0] == 0 || values[0] == 5);
    EXPECT_TRUE(values[1] == 0 || values[1] == -5);
    for (int i = 0; i < 2; ++i) sums[i] += values[i];
  }
  EXPECT_NEAR(sums[0] / 4000, 3, 0.2);
  EXPECT_NEAR(sums[1] / 4000, -4, 0.2);
}

// The root mean square of (6, 0, 0, 0) is 3: 6 is clipped to 3, and the residual has the rest.
TEST(BucketQuantizer, TernGradClips) {
  const auto codec = codec_of("terngrad:bound=1", 4);
  const std::vector<float> gradient{6, 0, 0, 0};
  std::vector<float> residual(4);
  const auto payload = encode(*codec, {.gradient = gradient, .residual = residual});
  EXPECT_THAT(decode(*codec, payload, 4), ElementsAre(3, 0, 0, 0));
  EXPECT_THAT(residual, ElementsAre(3, 0, 0, 0));
}

TEST(BucketQuantizer, TernGradSendsAnElementAlone) {
  const auto codec = codec_of("terngrad", 1);
  const std::vector<float> gradient{-6};
  EXPECT_THAT(decode(*codec, encode(*codec, {.gradient = gradient}), 1), ElementsAre(-6));
}

// The power of two above 3 is 4: 1 = 4 / 4 is code 127 - 2, -2 is code 128 + 126.
TEST(BucketQuantizer, NaturalByHand) {
  const auto codec = codec_of("natural", 3);
  const std::vector<float> gradient{1, -2, 3};
  const auto payload = encode(*codec, {.gradient = gradient});
  EXPECT_EQ(load_field<float>(&payload[16]), 4);
  EXPECT_EQ(static_cast<int>(payload[20]), 125);
  EXPECT_EQ(static_cast<int>(payload[21]), 254);
  const std::vector<float> values = decode(*codec, payload, 3);
  EXPECT_EQ(values[0], 1);
  EXPECT_EQ(values[1], -2);
  EXPECT_TRUE(values[2] == 2 || values[2] == 4);
}

// The same payload and residual for each target, and whether memory is read once or twice.
TEST(BucketQuantizer, EachTargetWritesTheSameBytes) {
  for (const std::string_view text : kSpecs)
    for (const size_t count : {1, 33, 2047, 2049, 4097, 10007}) {
      SCOPED_TRACE(std::string(text) + " count " + std::to_string(count));
      const auto codec = codec_of(text, count);
      const std::vector<float> gradient = normal_values(count, 1);
      std::vector<std::vector<std::byte>> payloads;
      std::vector<std::vector<float>> residuals;
      on_each_target([&] {
        std::vector<float> residual = normal_values(count, 2);
        payloads.push_back(encode(
            *codec, {.gradient = gradient, .residual = residual, .decay = 0.9F, .seed = 77}));
        residuals.push_back(residual);
      });
      EXPECT_THAT(payloads, Each(payloads[0]));
      EXPECT_THAT(residuals, Each(residuals[0]));
    }
}

// Without a residual blocks are taken in while others are coded, with one of zeros they are not.
TEST(BucketQuantizer, OfZerosAResidualChangesNoByte) {
  for (const std::string_view text : kSpecs)
    for (const size_t count : {33, 1024, 2048, 4097, 10007}) {
      SCOPED_TRACE(std::string(text) + " count " + std::to_string(count));
      const auto codec = codec_of(text, count);
      std::vector<float> gradient = normal_values(count, 1);
      if (count > 5000) gradient[3000] = gradient[9000] = std::numeric_limits<float>::infinity();
      std::vector<float> residual(count);
      const auto expected =
          encode(*codec, {.gradient = gradient, .residual = residual, .decay = 1, .seed = 5});
      on_each_target(
          [&] { EXPECT_EQ(encode(*codec, {.gradient = gradient, .seed = 5}), expected); });
    }
}

// v = gradient + decay * residual is what is decoded and what is left, up to rounding of the sum.
TEST(BucketQuantizer, WhatIsNotSentStaysInTheResidual) {
  for (const std::string_view text : kSpecs) {
    SCOPED_TRACE(text);
    const size_t count = 5003;
    const auto codec = codec_of(text, count);
    const std::vector<float> gradient = normal_values(count, 3);
    const std::vector<float> before = normal_values(count, 4);
    std::vector<float> residual = before;
    const auto payload = encode(
        *codec, {.gradient = gradient, .residual = residual, .decay = 0.5F, .seed = mix_u64(9)});
    const std::vector<float> values = decode(*codec, payload, count);
    std::vector<float> sum(count, 1);
    codec->accumulate(payload, 2, sum);
    for (size_t i = 0; i < count; ++i) {
      const float v = gradient[i] + 0.5F * before[i];
      ASSERT_EQ(residual[i], v - values[i]) << i;
      ASSERT_NEAR(sum[i], 1 + 2 * values[i], 1e-6F) << i;
    }
  }
}

// An independent walk over a long bucket: the scale is that of all of it, the codes are those of
// quantize_scalar().
TEST(BucketQuantizer, ALongBucketHasOneScale) {
  const size_t count = 9001;
  const auto codec = codec_of("int4:block=5000,rounding=stochastic", count);  // 5024 in fact
  std::vector<float> gradient = normal_values(count, 5);
  gradient[5000] = 7;
  gradient[5024] = -14;
  const auto payload = encode(*codec, {.gradient = gradient, .seed = 5});
  const BucketScale scales[] = {{1, 1}, {2, 0.5F}};
  std::vector<uint8_t> codes(count);
  quantize_scalar({.stochastic = true, .bits = 4, .levels = 7}, {.values = gradient.data(),
                                                                 .count = count,
                                                                 .bucket = 5024,
                                                                 .scales = scales,
                                                                 .seed = 5,
                                                                 .codes = codes.data()});
  std::vector<uint8_t> packed(packed_bytes(4, count));
  pack_codes_scalar(4, codes.data(), count, packed.data());
  EXPECT_EQ(load_field<float>(&payload[16]), 1);
  EXPECT_EQ(load_field<float>(&payload[20]), 2);
  ASSERT_EQ(payload.size(), 24 + packed.size());
  EXPECT_EQ(std::memcmp(&payload[24], packed.data(), packed.size()), 0);
}

TEST(BucketQuantizer, ABucketThatIsNotFiniteIsSeenAndLeavesItsResidual) {
  for (const std::string_view text : kSpecs)
    for (const float bad : {kInf, -kInf, std::nanf("")}) {
      SCOPED_TRACE(text);
      const size_t count = 10000;
      const auto codec = codec_of(text, count);
      std::vector<float> gradient = normal_values(count, 6);
      gradient[9999] = bad;
      std::vector<float> residual(count, 0.25F);
      const auto payload = encode(*codec, {.gradient = gradient, .residual = residual});
      EXPECT_TRUE(std::isnan(decode(*codec, payload, count)[9999]));
      EXPECT_EQ(residual[9999], 0.25F);
      for (const float value : residual) ASSERT_TRUE(std::isfinite(value));
    }
}

// Right within the rounding of the codec, or visibly too large.
TEST(BucketQuantizer, ExtremesAreRightOrNotFinite) {
  for (const std::string_view text : kSpecs)
    for (const float value :
         {kMax, -kMax, 0x1p127F, 0x1.8p126F, 1e-30F, 0x1p-126F, 1e-40F, 1e-45F, 0.0F, -0.0F}) {
      SCOPED_TRACE(std::string(text) + " of " + std::to_string(std::log2(std::fabs(value))));
      const auto codec = codec_of(text, 1);
      const std::vector<float> gradient{value};
      std::vector<float> residual(1);
      const auto payload = encode(*codec, {.gradient = gradient, .residual = residual});
      const float got = decode(*codec, payload, 1)[0];
      EXPECT_TRUE(std::isfinite(residual[0]));
      if (!std::isfinite(got)) {
        EXPECT_GT(std::fabs(value), 1e38F);
      } else {
        EXPECT_LE(std::fabs(got - value), std::max(std::fabs(value) / 2, 0x1p-90F));
        EXPECT_EQ(residual[0], value - got);
      }
    }
}

TEST(BucketQuantizer, NoElementsAreTheHeaderAlone) {
  for (const std::string_view text : kSpecs) {
    const auto codec = codec_of(text, 0);
    EXPECT_EQ(encode(*codec, {}).size(), kPayloadHeaderBytes) << text;
  }
}

TEST(BucketQuantizer, RefusesWhatItDoesNotWrite) {
  const auto codec = codec_of("qsgd:levels=7", 5);
  const auto good = encode(*codec, {.gradient = std::vector<float>{1, 2, 3, 4, 5}});
  ASSERT_EQ(good.size(), 16u + 4 + 3);
  const auto message = [&](size_t offset, int value) {
    auto bad = good;
    bad[offset] = static_cast<std::byte>(value);
    return codec->check(bad, 5).message();
  };
  EXPECT_THAT(message(0, 4), HasSubstr("field codec"));
  EXPECT_THAT(message(2, 1), HasSubstr("field flags"));
  EXPECT_THAT(message(3, 6), HasSubstr("field detail"));
  EXPECT_THAT(message(4, 6), HasSubstr("field count"));
  EXPECT_THAT(message(12, 4), HasSubstr("field entries"));
  EXPECT_THAT(message(19, 0x80), HasSubstr("field step"));   // negative
  EXPECT_THAT(message(22, 0x1f), HasSubstr("field codes"));  // a sixth element
  auto infinite = good;
  store_field(&infinite[16], kInf);
  EXPECT_THAT(codec->check(infinite, 5).message(), HasSubstr("field step"));
  const std::span<const std::byte> all(good);
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    EXPECT_FALSE(codec->check(all.first(bytes), 5).ok()) << bytes;
}

TEST(BucketQuantizer, RefusesAPartitionThatSaysItIsNotFinite) {
  const auto codec = codec_of("int8", 5);
  std::vector<std::byte> payload(kNotFiniteBytes);
  encode_not_finite(CodecId::kInt8, 5, 0, kInf, payload);
  EXPECT_THAT(codec->check(payload, 5).message(), HasSubstr("field flags"));
}

}  // namespace
}  // namespace gradbus
