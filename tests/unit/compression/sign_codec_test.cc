// signsgd, signum, efsignsgd, onebit: payloads and values worked by hand from the papers' formulas.
#include "compression/codecs/sign_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "compression/payload.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

using testing::Each;
using testing::ElementsAre;
using testing::HasSubstr;
using Bytes = std::vector<std::byte>;
using Floats = std::vector<float>;

constexpr float kInf = std::numeric_limits<float>::infinity();

std::unique_ptr<Codec> make(std::string_view text, size_t count_max = 1000) {
  const Result<CompressionSpec> spec = parse_compression(text);
  EXPECT_TRUE(spec.ok()) << spec.status().message();
  return spec.value().codec->make(spec.value().options, {.count_max = count_max});
}

Bytes encode_input(Codec& codec, const EncodeInput& input) {
  Bytes payload(codec.payload_bytes_max(input.count()));
  payload.resize(codec.encode(input, payload));
  const Status status = codec.check(payload, input.count());
  EXPECT_TRUE(status.ok()) << status.message();
  return payload;
}

Bytes encode(Codec& codec, const Floats& gradient) {
  return encode_input(codec, {.gradient = gradient});
}

Floats decode(const Codec& codec, const Bytes& payload, size_t count, float scale = 1) {
  Floats values(count);
  codec.decode(payload, scale, values);
  return values;
}

// ---- formats

TEST(SignCodec, WritesLevelsThenSigns) {
  const auto codec = make("onebit");
  const Bytes payload = encode(*codec, Floats{1, -2, 3, -4});
  ASSERT_EQ(payload.size(), 16u + 8 + 8);
  const PayloadHeader header = payload_header(payload);
  EXPECT_EQ(header.codec, static_cast<uint8_t>(CodecId::kOneBit));
  EXPECT_EQ(header.count, 4u);
  EXPECT_EQ(header.entries, 4u);
  EXPECT_EQ(header.bytes, 16u);
  EXPECT_EQ(load_field<float>(&payload[16]), -3);  // (-2 - 4) / 2
  EXPECT_EQ(load_field<float>(&payload[20]), 2);   // (1 + 3) / 2
  EXPECT_EQ(load_field<uint64_t>(&payload[24]), 0b1010u);
}

// 65 elements, 64 to a block: two levels, two words.
TEST(SignCodec, HasALevelForEachBlock) {
  Floats gradient(65, 2);
  gradient[64] = -7;
  const auto codec = make("efsignsgd:block=1");  // rounded up to a word
  const Bytes payload = encode(*codec, gradient);
  ASSERT_EQ(payload.size(), 16u + 2 * 4 + 2 * 8);
  EXPECT_EQ(load_field<float>(&payload[16]), 2);
  EXPECT_EQ(load_field<float>(&payload[20]), 7);
  EXPECT_EQ(load_field<uint64_t>(&payload[24]), 0u);
  EXPECT_EQ(load_field<uint64_t>(&payload[32]), 1u);
  EXPECT_EQ(decode(*codec, payload, 65), gradient);
}

TEST(SignCodec, TakesTheWholePartitionAsOneBlock) {
  Floats gradient(20000, 1);
  gradient[19999] = -20001;  // the mean magnitude is (19999 + 20001) / 20000 = 2
  const auto codec = make("efsignsgd:block=0");
  const Bytes payload = encode(*codec, gradient);
  EXPECT_EQ(payload.size(), 16u + 4 + 313 * 8);
  EXPECT_EQ(load_field<float>(&payload[16]), 2);
  EXPECT_EQ(decode(*codec, payload, 20000)[19999], -2);
}

TEST(SignCodec, OfNothingIsTheHeader) {
  for (const char* name : {"signsgd", "efsignsgd", "efsignsgd:block=0", "onebit", "signum"})
    EXPECT_EQ(encode(*make(name), Floats{}).size(), kPayloadHeaderBytes) << name;
}

// ---- formulas

// Zeros of both signs count as positive.
TEST(SignSgd, SendsSignsTimesStep) {
  const auto codec = make("signsgd:step=0.5");
  const Bytes payload = encode(*codec, Floats{3, -2, 0, -0.0F});
  EXPECT_THAT(decode(*codec, payload, 4), ElementsAre(0.5F, -0.5F, 0.5F, 0.5F));
  EXPECT_THAT(decode(*codec, payload, 4, 4), ElementsAre(2, -2, 2, 2));
}

// Votes of three: +-+, -++, --+ make -1, -1, +3; of the first two: 0, 0, 2, ties are positive.
TEST(SignSgd, TheSignOfASumIsTheMajority) {
  const auto codec = make("signsgd");
  Floats sum(3);
  codec->accumulate(encode(*codec, Floats{5, -1, 2}), 1, sum);
  codec->accumulate(encode(*codec, Floats{-1, 3, 2}), 1, sum);
  EXPECT_THAT(sum, ElementsAre(0, 0, 2));
  EXPECT_THAT(decode(*codec, encode(*codec, sum), 3), ElementsAre(1, 1, 1));
  codec->accumulate(encode(*codec, Floats{-1, -1, 1}), 1, sum);
  EXPECT_THAT(sum, ElementsAre(-1, -1, 3));
  EXPECT_THAT(decode(*codec, encode(*codec, sum), 3), ElementsAre(-1, -1, 1));
}

// v = g + 0.5 r = {2, -4, 0}, mean |v| = 2; what is lacking: {0, -2, -2}.
TEST(EfSignSgd, KeepsWhatThePayloadLacks) {
  const auto codec = make("efsignsgd");
  const Floats gradient{1, -4, 1};
  Floats residual{2, 0, -2};
  const Bytes payload =
      encode_input(*codec, {.gradient = gradient, .residual = residual, .decay = 0.5F});
  EXPECT_THAT(decode(*codec, payload, 3), ElementsAre(2, -2, 2));
  EXPECT_THAT(residual, ElementsAre(0, -2, -2));
}

TEST(EfSignSgd, EncodesTheResidualAlone) {
  const auto codec = make("efsignsgd");
  Floats residual{6, -2};
  const Bytes payload = encode_input(*codec, {.residual = residual});
  EXPECT_THAT(decode(*codec, payload, 2), ElementsAre(4, -4));
  EXPECT_THAT(residual, ElementsAre(2, 2));
}

// v = {-2, -4, 1, 3, 8}: means -3 and 4.
TEST(OneBit, SendsTheMeanOfEachSide) {
  const auto codec = make("onebit");
  const Floats gradient{-2, -4, 1, 3, 8};
  Floats residual(5);
  const Bytes payload = encode_input(*codec, {.gradient = gradient, .residual = residual});
  EXPECT_THAT(decode(*codec, payload, 5), ElementsAre(-3, -3, 4, 4, 4));
  EXPECT_THAT(residual, ElementsAre(1, -1, -3, -1, 4));
}

TEST(OneBit, ASideWithoutElementsIsZero) {
  const auto codec = make("onebit");
  EXPECT_THAT(decode(*codec, encode(*codec, Floats{-1, -3}), 2), ElementsAre(-2, -2));
  EXPECT_THAT(decode(*codec, encode(*codec, Floats{1, 3}), 2), ElementsAre(2, 2));
  EXPECT_THAT(decode(*codec, encode(*codec, Floats{0, -0.0F}), 2), ElementsAre(0, 0));
}

// beta = 0.5: m1 = {4, -2}, m2 = {2 - 1, -1 + 6} = {1, 5}, m3 = {0.5 - 2, 2.5 + 0}.
TEST(Signum, SendsTheSignOfTheMomentum) {
  const auto codec = make("signum:beta=0.5");
  EXPECT_THAT(decode(*codec, encode(*codec, Floats{4, -2}), 2), ElementsAre(1, -1));
  EXPECT_THAT(decode(*codec, encode(*codec, Floats{-1, 6}), 2), ElementsAre(1, 1));
  EXPECT_THAT(decode(*codec, encode(*codec, Floats{-2, 0}), 2), ElementsAre(-1, 1));
}

// m = 0.5 * 0 + v, v = g + r = {3, -1}: signs + and -; what v lacks: {2, 0}.
TEST(Signum, WithAResidualKeepsWhatVLacks) {
  const auto codec = make("signum:beta=0.5");
  const Floats gradient{1, -2};
  Floats residual{2, 1};
  encode_input(*codec, {.gradient = gradient, .residual = residual});
  EXPECT_THAT(residual, ElementsAre(2, 0));
}

TEST(Signum, MomentumLeavesOutWhatIsNotFinite) {
  const auto codec = make("signum:beta=0.5");
  encode(*codec, Floats{4, -2});  // m = {4, -2}
  EXPECT_THAT(decode(*codec, encode(*codec, Floats{kInf, 1}), 2), Each(testing::IsNan()));
  EXPECT_THAT(decode(*codec, encode(*codec, Floats{-1, 0.5F}), 2), ElementsAre(1, -1));
}

// More than a block, with every way to have a residual, against the formula element by element.
TEST(Signum, FollowsTheFormulaOverBlocks) {
  const size_t count = kSignBlockElements + 77;
  const auto codec = make("signum:beta=0.75", count);
  Floats gradient(count);
  Floats momentum(count);
  for (int round = 0; round < 3; ++round) {
    for (size_t i = 0; i < count; ++i) {
      gradient[i] = static_cast<float>((i * 7919 + static_cast<size_t>(round) * 31) % 101) - 50;
      momentum[i] = 0.25F * gradient[i] + 0.75F * momentum[i];
    }
    const Floats values = decode(*codec, encode(*codec, gradient), count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(values[i], momentum[i] < 0 ? -1 : 1) << i;
  }
}

// ---- not finite

TEST(SignCodec, NotFiniteIsSeenAndLeavesTheResidualOfItsBlock) {
  for (const char* name : {"signsgd", "efsignsgd:block=64", "onebit:block=64", "signum"}) {
    for (const float odd : {kInf, -kInf, std::nanf("")}) {
      SCOPED_TRACE(testing::Message() << name << " " << odd);
      const auto codec = make(name);
      Floats gradient(100, 1);
      gradient[70] = odd;
      Floats residual(100, 3);
      const Bytes payload = encode_input(*codec, {.gradient = gradient, .residual = residual});
      EXPECT_FALSE(std::isfinite(decode(*codec, payload, 100)[70]));
      EXPECT_EQ(residual[70], 3);
      EXPECT_EQ(residual[99], 3);
      for (const float value : residual) EXPECT_TRUE(std::isfinite(value));
    }
  }
}

TEST(EfSignSgd, TheMeanOfHugeElementsIsRightOrNaN) {
  const auto codec = make("efsignsgd");
  const float huge = std::numeric_limits<float>::max() / 17;
  EXPECT_THAT(decode(*codec, encode(*codec, Floats(200, huge)), 200), Each(huge));
  const float most = std::numeric_limits<float>::max();
  EXPECT_THAT(decode(*codec, encode(*codec, Floats(200, most)), 200), Each(testing::IsNan()));
}

// ---- hostile payloads

class HostileSigns : public testing::Test {
 protected:
  std::string refusal() const { return codec_->check(payload_, 70).message(); }
  template <typename T>
  void put(size_t offset, T value) {
    store_field(&payload_[offset], value);
  }

  std::unique_ptr<Codec> codec_ = make("onebit");
  Bytes payload_ = encode(*codec_, Floats(70, -1));
};

TEST_F(HostileSigns, Length) {
  payload_.pop_back();
  EXPECT_THAT(refusal(), HasSubstr("field bytes"));
  put(8, static_cast<uint32_t>(payload_.size() - 16));
  EXPECT_THAT(refusal(), HasSubstr("field bytes"));
  payload_.resize(payload_.size() + 9);
  put(8, static_cast<uint32_t>(payload_.size() - 16));
  EXPECT_THAT(refusal(), HasSubstr("field bytes"));
}

TEST_F(HostileSigns, Header) {
  put(2, uint8_t{1});
  EXPECT_THAT(refusal(), HasSubstr("field flags"));
  put(2, uint8_t{0});
  put(3, uint8_t{1});
  EXPECT_THAT(refusal(), HasSubstr("field detail"));
  put(3, uint8_t{0});
  put(12, 69u);
  EXPECT_THAT(refusal(), HasSubstr("field entries"));
}

TEST_F(HostileSigns, PartitionThatIsNotFiniteHasAnotherForm) {
  payload_.resize(kNotFiniteBytes);
  encode_not_finite(CodecId::kOneBit, 70, 3, kInf, payload_);
  EXPECT_THAT(refusal(), HasSubstr("field flags"));
}

TEST_F(HostileSigns, Levels) {
  for (const float below : {1.0F, -kInf, std::nanf("")}) {
    put(16, below);
    EXPECT_THAT(refusal(), HasSubstr("field levels")) << below;
  }
  put(16, -1.0F);
  for (const float rest : {-1.0F, kInf, std::nanf("")}) {
    put(20, rest);
    EXPECT_THAT(refusal(), HasSubstr("field levels")) << rest;
  }
}

TEST_F(HostileSigns, BitsPastTheEnd) {
  put(payload_.size() - 8, uint64_t{1} << 6);
  EXPECT_THAT(refusal(), HasSubstr("field signs"));
}

TEST(SignSgd, RefusesAnotherStep) {
  const auto codec = make("signsgd:step=2");
  const Bytes payload = encode(*make("signsgd"), Floats{1});
  EXPECT_THAT(codec->check(payload, 1).message(), HasSubstr("field levels"));
}

}  // namespace
}  // namespace gradbus
