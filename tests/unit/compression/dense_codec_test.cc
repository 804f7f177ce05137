#include "compression/codecs/dense_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "compression/payload.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::unique_ptr<Codec> codec_of(std::string_view text, size_t count) {
  Result<CompressionSpec> spec = parse_compression(text);
  return spec.value().codec->make(spec.value().options, {.count_max = count});
}

std::vector<std::byte> encode(Codec& codec, const EncodeInput& input) {
  std::vector<std::byte> payload(codec.payload_bytes_max(input.count()));
  payload.resize(codec.encode(input, payload));
  return payload;
}

// 1 + 2^-11 ties between 1 and 1 + 2^-10 in f16: 0x3c00. -2 is 0xc000.
TEST(DenseCodec, Fp16ByHand) {
  const auto codec = codec_of("fp16", 2);
  const std::vector<float> gradient{1, -2};
  std::vector<float> residual{0x1p-11F, 0};
  const auto payload = encode(*codec, {.gradient = gradient, .residual = residual});
  const unsigned char expected[] = {1, 1, 0, 0, 2, 0, 0, 0,    4, 0,
                                    0, 0, 2, 0, 0, 0, 0, 0x3c, 0, 0xc0};
  ASSERT_EQ(payload.size(), sizeof(expected));
  EXPECT_EQ(std::memcmp(payload.data(), expected, sizeof(expected)), 0);
  EXPECT_THAT(residual, ElementsAre(0x1p-11F, 0));
  std::vector<float> sum{10, 20};
  codec->accumulate(payload, 0.5F, sum);
  EXPECT_THAT(sum, ElementsAre(10.5F, 19));
}

// bf16 has 8 bits: 257 ties between 256 and 258, 256 is even.
TEST(DenseCodec, Bf16KeepsWhatRoundingLoses) {
  const auto codec = codec_of("bf16", 1);
  std::vector<float> residual{257};
  const auto payload = encode(*codec, {.residual = residual});
  EXPECT_THAT(residual, ElementsAre(1));
  std::vector<float> values(1);
  codec->decode(payload, 1, values);
  EXPECT_THAT(values, ElementsAre(256));
}

TEST(DenseCodec, NoneIsExactAndEmptiesTheResidual) {
  const auto codec = codec_of("none", 3);
  const std::vector<float> gradient{1e-40F, -3, std::numeric_limits<float>::max()};
  std::vector<float> residual{0, 0.5F, 0};
  const auto payload = encode(*codec, {.gradient = gradient, .residual = residual, .decay = 0.5F});
  EXPECT_THAT(residual, ElementsAre(0, 0, 0));
  std::vector<float> values(3);
  codec->decode(payload, 1, values);
  EXPECT_THAT(values, ElementsAre(1e-40F, -2.75F, std::numeric_limits<float>::max()));
}

// 70000 is beyond f16.
TEST(DenseCodec, WhatIsNotFiniteIsSeenAndLeavesTheResidual) {
  const auto codec = codec_of("fp16", 3);
  const std::vector<float> gradient{70000, std::nanf(""), 1};
  std::vector<float> residual{0.25F, 0.5F, 0};
  const auto payload = encode(*codec, {.gradient = gradient, .residual = residual});
  std::vector<float> values(3);
  codec->decode(payload, 1, values);
  EXPECT_EQ(values[0], kInf);
  EXPECT_TRUE(std::isnan(values[1]));
  EXPECT_THAT(residual, ElementsAre(0.25F, 0.5F, 0));
}

TEST(DenseCodec, RefusesWhatItDoesNotWrite) {
  const auto codec = codec_of("bf16", 4);
  const std::vector<float> gradient{1, 2, 3};
  const auto good = encode(*codec, {.gradient = gradient});
  EXPECT_TRUE(codec->check(good, 3).ok());
  EXPECT_THAT(codec->check(good, 4).message(), HasSubstr("field count"));
  const auto message = [&](size_t offset, int value) {
    auto bad = good;
    bad[offset] = static_cast<std::byte>(value);
    return codec->check(bad, 3).message();
  };
  EXPECT_THAT(message(0, 1), HasSubstr("field codec"));
  EXPECT_THAT(message(2, 1), HasSubstr("field flags"));
  EXPECT_THAT(message(3, 1), HasSubstr("field detail"));
  EXPECT_THAT(message(8, 7), HasSubstr("field bytes"));
  EXPECT_THAT(message(12, 2), HasSubstr("field entries"));
  auto longer = good;
  longer.push_back({});
  longer[8] = std::byte{7};
  EXPECT_THAT(codec->check(longer, 3).message(), HasSubstr("field bytes"));
}

// Two agents, f16: 1 + 2^-11 goes as 1; the sum is 1 + 3, doubled by scale.
TEST(DenseLinear, SumsInFlightAndKeepsItsOwnRounding) {
  const CodecRow* row = find_codec("fp16");
  const auto codec = row->make_linear(CodecOptions(), {.count_max = 1});
  EXPECT_EQ(codec->rounds(), 1u);
  EXPECT_EQ(codec->dtype(0), DType::kF16);
  EXPECT_EQ(codec->vector_elements(0), 1u);
  std::vector<float> residual{1 + 0x1p-11F};
  const EncodeInput input{.residual = residual};
  uint16_t vector = 0;
  codec->project(0, input, 0, {}, std::as_writable_bytes(std::span(&vector, 1)));
  EXPECT_EQ(vector, 0x3c00);
  const uint16_t sum = 0x4400;  // 4
  std::vector<float> values(1);
  codec->finish(input, 0, 2, std::as_bytes(std::span(&sum, 1)), 2, values);
  EXPECT_THAT(values, ElementsAre(8));
  EXPECT_THAT(residual, ElementsAre(0x1p-11F));
}

}  // namespace
}  // namespace gradbus
