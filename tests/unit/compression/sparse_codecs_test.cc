// What topk, dgc, randk and threshold select.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <vector>

#include "compression/codecs/dgc.h"
#include "compression/codecs/randk.h"
#include "compression/codecs/threshold.h"
#include "compression/codecs/topk.h"
#include "compression/error_feedback.h"
#include "compression/payload.h"

namespace gradbus {
namespace {

using testing::Each;
using testing::ElementsAre;

using Payload = std::vector<std::byte>;

Payload encode(Codec& codec, const EncodeInput& input) {
  Payload payload(codec.payload_bytes_max(input.count()));
  payload.resize(codec.encode(input, payload));
  EXPECT_TRUE(codec.check(payload, input.count()).ok());
  return payload;
}

std::vector<float> decode(const Codec& codec, const Payload& payload, size_t count) {
  std::vector<float> values(count);
  codec.decode(payload, 1, values);
  return values;
}

std::vector<float> normal(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> distribution;
  std::vector<float> values(count);
  for (float& value : values) value = distribution(random);
  return values;
}

size_t entries(const Payload& payload) { return payload_header(payload).entries; }

// ---- topk ---------------------------------------------------------------------------------------

TEST(TopK, SendsAtLeastOneAndRoundsDown) {
  const std::vector<float> gradient{1, -5, 3, 4, 2, 0};
  TopK one({.ratio = 0.01}, WireType::kF32, 6);
  EXPECT_THAT(decode(one, encode(one, {.gradient = gradient}), 6), ElementsAre(0, -5, 0, 0, 0, 0));
  TopK half({.ratio = 0.34}, WireType::kF32, 6);  // floor(2.04)
  EXPECT_THAT(decode(half, encode(half, {.gradient = gradient}), 6),
              ElementsAre(0, -5, 0, 4, 0, 0));
}

// A sample is taken from 2048 elements on. The k-th magnitude by a sort; all at and above it sent.
TEST(TopK, IsExactOnSampledPartitions) {
  for (const size_t count : {2048u, 5000u, 100000u}) {
    for (const double ratio : {0.001, 0.01, 0.3, 1.0}) {
      const std::vector<float> gradient = normal(count, 4);
      TopK topk({.ratio = ratio}, WireType::kF32, count);
      const Payload payload = encode(topk, {.gradient = gradient});
      const auto k = std::max<size_t>(1, static_cast<size_t>(static_cast<double>(count) * ratio));
      EXPECT_EQ(entries(payload), k);
      std::vector<float> magnitudes(count);
      std::transform(gradient.begin(), gradient.end(), magnitudes.begin(),
                     [](float value) { return std::fabs(value); });
      std::sort(magnitudes.rbegin(), magnitudes.rend());
      const std::vector<float> got = decode(topk, payload, count);
      for (size_t i = 0; i < count; ++i)
        ASSERT_EQ(got[i], std::fabs(gradient[i]) >= magnitudes[k - 1] ? gradient[i] : 0) << i;
    }
  }
}

// Large where no sampled line is: the guess is 0 and everything else passes it.
TEST(TopK, IsExactWhereTheSampleMisleads) {
  const size_t count = 64 * 2048;  // a line of 16 every 2048
  std::vector<float> gradient(count);
  for (size_t i = 0; i < count; ++i) gradient[i] = i % 2048 < 16 ? 0 : static_cast<float>(i + 1);
  TopK topk({.ratio = 0.001}, WireType::kF32, count);
  const std::vector<float> got = decode(topk, encode(topk, {.gradient = gradient}), count);
  EXPECT_EQ(static_cast<size_t>(std::count(got.begin(), got.end(), 0.0F)), count - 131);
  for (size_t i = count - 131; i < count; ++i) EXPECT_EQ(got[i], gradient[i]);
}

// What is sent and what is kept are v together, in every round.
TEST(TopK, KeepsWhatItDoesNotSend) {
  const size_t count = 5000;
  TopK topk({.ratio = 0.01}, WireType::kF32, count);
  std::vector<float> residual(count, 0);
  for (uint32_t round = 1; round <= 5; ++round) {
    const std::vector<float> gradient = normal(count, round);
    std::vector<float> v(count);
    for (size_t i = 0; i < count; ++i) v[i] = gradient[i] + residual[i];
    const Payload payload = encode(topk, {.gradient = gradient, .residual = residual});
    const std::vector<float> sent = decode(topk, payload, count);
    for (size_t i = 0; i < count; ++i) ASSERT_EQ(residual[i] + sent[i], v[i]);
  }
}

// DGC's error feedback passes everything in the residual; the gradient is empty.
TEST(TopK, EncodesTheResidualAlone) {
  std::vector<float> residual{1, -5, 3};
  TopK topk({.ratio = 0.4}, WireType::kF32, 3);
  const Payload payload = encode(topk, {.residual = residual});
  EXPECT_THAT(decode(topk, payload, 3), ElementsAre(0, -5, 0));
  EXPECT_THAT(residual, ElementsAre(1, 0, 3));
  encode(topk, {.residual = residual, .decay = 0.5F});
  EXPECT_THAT(residual, ElementsAre(0.5F, 0, 0));
}

// 4 bytes of value and at most 1.45 of index at a density of 0.001.
TEST(TopK, NeedsFewBytes) {
  const size_t count = 2'000'000;
  const std::vector<float> gradient = normal(count, 9);
  TopK f32({.ratio = 0.001}, WireType::kF32, count);
  EXPECT_LE(encode(f32, {.gradient = gradient}).size(), 5.45 * 2000);
  TopK fp16({.ratio = 0.001}, WireType::kFp16, count);
  EXPECT_LE(encode(fp16, {.gradient = gradient}).size(), 3.45 * 2000);
}

// ---- dgc ----------------------------------------------------------------------------------------

// The example of the public code: 2359296 elements, ratio 0.001, 1 % sampled.
TEST(Dgc, SizesByHand) {
  const DgcSizes sizes = dgc_sizes(2359296, 0.001, 0.01);
  EXPECT_EQ(sizes.stride, 97u);
  EXPECT_EQ(sizes.samples, 24322u);
  EXPECT_EQ(sizes.top, 25u);
  EXPECT_EQ(sizes.k, 2360u);
}

// 2000 are wanted of 180000: 90 in 32s and one is 97, of which there are 1855; 89 gives 2022.
TEST(Dgc, StrideIsLoweredByEight) {
  EXPECT_EQ(dgc_sizes(180'000, 0.001, 0.01).stride, 89u);
  EXPECT_EQ(dgc_sizes(180'000, 0.001, 0.01).samples, 2022u);
}

// Up to ceil(2 / ratio) elements all are the sample. 2001: wanted 2000, stride 33 lowered to 1.
TEST(Dgc, SizesOfSmallPartitions) {
  const DgcSizes all = dgc_sizes(2000, 0.001, 0.01);
  EXPECT_EQ(all.stride, 1u);
  EXPECT_EQ(all.samples, 2000u);
  EXPECT_EQ(all.top, 2u);
  EXPECT_EQ(all.k, 2u);
  EXPECT_EQ(dgc_sizes(2001, 0.001, 0.01).stride, 1u);
  EXPECT_EQ(dgc_sizes(2001, 0.001, 0.01).samples, 2001u);
  EXPECT_EQ(dgc_sizes(1, 1, 0.01).k, 1u);
}

// 10^8 elements: 65536 are wanted, not 10^6; 10^8 / 65536 = 1525.9, in 32s and one: 1537, then down
// by 8 to 1521.
TEST(Dgc, SampleOfLargePartitionsIsBounded) {
  const DgcSizes sizes = dgc_sizes(100'000'000, 0.001, 0.01);
  EXPECT_EQ(sizes.stride, 1521u);
  EXPECT_EQ(sizes.samples, 65746u);
  EXPECT_EQ(sizes.top, 66u);
}

// c = 1/4 over four stages of 10 rounds: 1/4, 1/16, 1/64, 1/256, then the ratio.
TEST(WarmUp, ByHand) {
  const WarmUp options{.ratio = 0.001, .rounds = 40, .stages = 4};
  EXPECT_EQ(options.ratio_in(1), 0.25);
  EXPECT_EQ(options.ratio_in(10), 0.25);
  EXPECT_EQ(options.ratio_in(11), 0.0625);
  EXPECT_EQ(options.ratio_in(30), 0.015625);
  EXPECT_EQ(options.ratio_in(40), 0.00390625);
  EXPECT_EQ(options.ratio_in(41), 0.001);
  EXPECT_EQ((WarmUp{.ratio = 0.1, .rounds = 40, .stages = 4}.ratio_in(40)), 0.1);
}

// c = 0.001^(1/5) = 0.2512: 0.316 belongs to 0.0032 = 0.316^5, two orders less than four stages.
TEST(WarmUp, WithoutCoefficient) {
  const WarmUp options{.ratio = 0.001, .coefficient = 0, .rounds = 4, .stages = 4};
  EXPECT_NEAR(options.ratio_in(1), 0.251189, 1e-6);
  EXPECT_NEAR(options.ratio_in(4), 0.00398107, 1e-8);
}

TEST(Dgc, SendsAboutTheRatioOfTheLargest) {
  const size_t count = 300'000;
  const std::vector<float> gradient = normal(count, 6);
  Dgc dgc({.ratio = {.ratio = 0.001}}, WireType::kF32, count);
  for (uint64_t seed = 1; seed <= 20; ++seed) {
    const Payload payload = encode(dgc, {.gradient = gradient, .seed = seed});
    EXPECT_GE(entries(payload), 240u);
    EXPECT_LE(entries(payload), 300u);
    const std::vector<float> sent = decode(dgc, payload, count);
    float least_sent = 1e9F, most_kept = 0;
    for (size_t i = 0; i < count; ++i) {
      if (sent[i] != 0) least_sent = std::min(least_sent, std::fabs(sent[i]));
      if (sent[i] == 0) most_kept = std::max(most_kept, std::fabs(gradient[i]));
    }
    EXPECT_GE(least_sent, most_kept);
  }
}

// The memory's own pass, or the codec's: the same payloads, residuals and momenta. Of small whole
// numbers a NaN of the third round is undone exactly, in a partition that is not looked at first,
// too.
template <typename MakeCodec>
void expect_momentum_alike(size_t count, bool nesterov, const MakeCodec& make_codec) {
  ErrorFeedbackOptions options{
      .kind = ErrorFeedbackKind::kDgc, .momentum = 0.5F, .nesterov = nesterov};
  ErrorFeedback own(options, count);
  options.codec_takes_momentum = true;
  ErrorFeedback left(options, count);
  auto own_codec = make_codec(count), left_codec = make_codec(count);
  std::mt19937 random(3);
  for (uint64_t round = 1; round <= 4; ++round) {
    std::vector<float> gradient(count);
    for (float& value : gradient) value = static_cast<float>(random() % 4096) - 2048;
    if (round == 3) gradient[count - 5] = std::nanf("");
    const Payload want = encode(own_codec, own.compensate(gradient, round, round));
    const EncodeInput input = left.compensate(gradient, round, round);
    EXPECT_FALSE(input.momentum.empty());
    ASSERT_EQ(encode(left_codec, input), want) << round;
    own.update(own_codec, want);
    left.update(left_codec, want);
    EXPECT_TRUE(std::ranges::equal(left.residual(), own.residual())) << round;
    EXPECT_TRUE(std::ranges::equal(left.momentum(), own.momentum())) << round;
  }
}

TEST(Dgc, TakesMomentumInAsTheMemoryDoes) {
  for (const size_t count : {size_t{3000}, size_t{20'000}, (size_t{1} << 20) + 3000}) {
    for (const bool nesterov : {false, true}) {
      expect_momentum_alike(count, nesterov, [](size_t most) {
        return Dgc({.ratio = {.ratio = 0.001}}, WireType::kF32, most);
      });
      expect_momentum_alike(count, nesterov, [](size_t most) {
        return Dgc({.ratio = {.ratio = 0.001}}, WireType::kFp16, most);
      });
      expect_momentum_alike(
          count, nesterov, [](size_t most) { return TopK({.ratio = 0.01}, WireType::kF32, most); });
    }
  }
}

TEST(Dgc, SendsMoreInWarmUp) {
  const size_t count = 10'000;
  const std::vector<float> gradient = normal(count, 6);
  Dgc dgc({.ratio = {.ratio = 0.01, .rounds = 2, .stages = 2}}, WireType::kF32, count);
  EXPECT_NEAR(static_cast<double>(entries(encode(dgc, {.gradient = gradient, .round = 1}))), 2300,
              200);
  EXPECT_NEAR(static_cast<double>(entries(encode(dgc, {.gradient = gradient, .round = 2}))), 560,
              65);
  EXPECT_NEAR(static_cast<double>(entries(encode(dgc, {.gradient = gradient, .round = 3}))), 90,
              10);
}

// Exactly 1/4, 1/16, then 1/100 of them; a payload of any stage is right, of more or fewer is not.
TEST(TopK, SendsMoreInWarmUp) {
  const size_t count = 10'000;
  const std::vector<float> gradient = normal(count, 6);
  TopK topk({.ratio = 0.01, .rounds = 2, .stages = 2}, WireType::kF32, count);
  for (const auto& [round, sent] : {std::pair{1u, 2500u}, {2u, 625u}, {3u, 100u}, {9u, 100u}}) {
    const Payload payload = encode(topk, {.gradient = gradient, .round = round});
    EXPECT_EQ(entries(payload), sent);
    EXPECT_TRUE(topk.check(payload, count).ok());
    EXPECT_LE(payload.size(), topk.payload_bytes_max(count));
  }
  TopK more({.ratio = 0.3}, WireType::kF32, count);
  TopK fewer({.ratio = 0.009}, WireType::kF32, count);
  for (TopK* other : {&more, &fewer})
    EXPECT_FALSE(topk.check(encode(*other, {.gradient = gradient}), count).ok());
}

// ---- randk --------------------------------------------------------------------------------------

TEST(RandK, DrawsDistinctIndicesUniformly) {
  const size_t count = 100;
  for (const size_t k : {1u, 30u, 50u, 51u, 99u, 100u}) {
    IndexDraw draw(count, k);
    std::vector<int> drawn(count, 0);
    for (uint64_t seed = 0; seed < 2000; ++seed) {
      draw.draw(seed * 7919, count, k);
      const auto indices = draw.list(0, count);
      ASSERT_EQ(indices.size(), k);
      for (size_t i = 1; i < k; ++i) ASSERT_LT(indices[i - 1], indices[i]);
      for (const uint32_t index : indices) ++drawn.at(index);
    }
    // Binomial, mean 20 k: six standard deviations.
    const double p = static_cast<double>(k) / count;
    for (const int times : drawn)
      EXPECT_NEAR(times, 2000 * p, 6 * std::sqrt(2000 * p * (1 - p)) + 1e-9) << k;
  }
}

// k = 2 of 8: values times 4, indices from the seed.
TEST(RandK, ScalesWithoutFeedback) {
  const std::vector<float> gradient(8, 3);
  RandK randk({.ratio = 0.25}, WireType::kF32, 8);
  const Payload payload = encode(randk, {.gradient = gradient, .seed = 5});
  EXPECT_EQ(entries(payload), 2u);
  const std::vector<float> sent = decode(randk, payload, 8);
  EXPECT_EQ(std::count(sent.begin(), sent.end(), 12.0F), 2);
  EXPECT_EQ(std::accumulate(sent.begin(), sent.end(), 0.0F), 24);
}

TEST(RandK, DoesNotScaleWithFeedback) {
  const std::vector<float> gradient(8, 3);
  std::vector<float> residual(8, 0);
  RandK randk({.ratio = 0.25}, WireType::kF32, 8);
  const Payload payload = encode(randk, {.gradient = gradient, .residual = residual});
  const std::vector<float> sent = decode(randk, payload, 8);
  EXPECT_EQ(std::count(sent.begin(), sent.end(), 3.0F), 2);
  for (size_t i = 0; i < 8; ++i) EXPECT_EQ(sent[i] + residual[i], 3);
}

// A partition of several blocks and a part of one, with values that are exact in f16, too: what is
// sent, twice as large where it is scaled, is taken off the residual.
TEST(RandK, TakesWhatItSendsOffTheResidual) {
  constexpr size_t kCount = 3 * 2048 + 77;
  std::vector<float> gradient(kCount), kept(kCount);
  for (size_t i = 0; i < kCount; ++i) {
    gradient[i] = static_cast<float>(i % 37);
    kept[i] = static_cast<float>(2 * (i % 7));
  }
  for (const WireType type : {WireType::kF32, WireType::kFp16}) {
    for (const RandKScale scale : {RandKScale::kAuto, RandKScale::kYes}) {
      std::vector<float> residual = kept;
      const float factor = scale == RandKScale::kYes
                               ? static_cast<float>(kCount) / static_cast<float>(kCount / 2)
                               : 1;
      RandK randk({.ratio = 0.5, .scale = scale}, type, kCount);
      const std::vector<float> sent =
          decode(randk, encode(randk, {.gradient = gradient, .residual = residual, .decay = 0.5F}),
                 kCount);
      size_t drawn = 0;
      for (size_t i = 0; i < kCount; ++i) {
        const float v = gradient[i] + 0.5F * kept[i];
        EXPECT_EQ(residual[i], v - sent[i]) << i;
        if (sent[i] == 0) continue;
        ++drawn;
        EXPECT_NEAR(sent[i], factor * v, 0.001 * v) << i;
      }
      EXPECT_NEAR(static_cast<double>(drawn), kCount / 2, kCount / 20);  // some of them are zeros
    }
  }
}

// Expect: what was taken off and written before the bad element is as it was.
TEST(RandK, GivesTheResidualBack) {
  constexpr size_t kCount = 3 * 2048;
  for (const WireType type : {WireType::kF32, WireType::kFp16}) {
    for (const RandKScale scale : {RandKScale::kAuto, RandKScale::kYes}) {
      std::vector<float> kept(kCount), gradient(kCount, 3);
      for (size_t i = 0; i < kCount; ++i) kept[i] = static_cast<float>(i % 13);
      kept[5000] = std::numeric_limits<float>::infinity();
      std::vector<float> residual = kept;
      RandK randk({.ratio = 0.5, .scale = scale}, type, kCount);
      EXPECT_TRUE(is_not_finite(encode(randk, {.gradient = gradient, .residual = residual})));
      EXPECT_EQ(residual, kept);
    }
  }
}

// An element that is not drawn is seen all the same.
TEST(RandK, SeesWhatItDoesNotSend) {
  std::vector<float> gradient(1000, 1);
  gradient[700] = -std::numeric_limits<float>::infinity();
  RandK randk({.ratio = 0.001}, WireType::kF32, 1000);
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const Payload payload = encode(randk, {.gradient = gradient, .seed = seed});
    EXPECT_TRUE(std::isinf(decode(randk, payload, 1000)[700]));
  }
}

// Two agents by hand: values are the sum of both at the same two elements, times the scale.
TEST(LinearRandK, SumsInFlight) {
  const std::vector<float> gradients[] = {{1, 2, 3, 4}, {10, 20, 30, 40}};
  std::vector<float> residuals[] = {{0, 0, 0, 0}, {1, 1, 1, 1}};
  LinearRandK first({.ratio = 0.5}, 4), second({.ratio = 0.5}, 4);
  LinearRandK* const agents[] = {&first, &second};
  std::vector<float> sum(first.vector_elements(0), 0), vector(sum.size());
  for (int a = 0; a < 2; ++a) {
    agents[a]->project(0, {.gradient = gradients[a], .residual = residuals[a]}, 77, {},
                       std::as_writable_bytes(std::span(vector)));
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += vector[i];
  }
  std::vector<float> values[2];
  for (int a = 0; a < 2; ++a) {
    values[a].resize(4);
    agents[a]->finish({.gradient = gradients[a], .residual = residuals[a]}, 77, 2,
                      std::as_bytes(std::span(sum)), 0.5F, values[a]);
  }
  EXPECT_EQ(values[0], values[1]);
  EXPECT_EQ(std::count(values[0].begin(), values[0].end(), 0.0F), 2);
  for (size_t i = 0; i < 4; ++i) {  // all v: (1 + 10) (i + 1) + 1
    const float all = 11 * static_cast<float>(i + 1) + 1;
    EXPECT_EQ(2 * values[0][i] + residuals[0][i] + residuals[1][i], all);
    EXPECT_EQ(values[0][i] != 0, residuals[0][i] == 0 && residuals[1][i] == 0);
  }
}

// Times 4 / 2 without feedback; the same elements from the same shared seed, others from another.
TEST(LinearRandK, ScalesWithoutFeedback) {
  std::vector<float> gradient(1000);
  std::iota(gradient.begin(), gradient.end(), 1.0F);
  LinearRandK randk({.ratio = 0.5}, 1000), other({.ratio = 0.5}, 1000);
  std::vector<float> one(500), two(500);
  randk.project(0, {.gradient = gradient, .seed = 1}, 9, {},
                std::as_writable_bytes(std::span(one)));
  other.project(0, {.gradient = gradient, .seed = 2}, 9, {},
                std::as_writable_bytes(std::span(two)));
  EXPECT_EQ(one, two);
  other.project(0, {.gradient = gradient, .seed = 2}, 10, {},
                std::as_writable_bytes(std::span(two)));
  EXPECT_NE(one, two);
  std::vector<float> values(1000);
  randk.finish({.gradient = gradient}, 9, 1, std::as_bytes(std::span(one)), 1, values);
  for (size_t i = 0; i < 1000; ++i)
    EXPECT_TRUE(values[i] == 0 || values[i] == 2 * gradient[i]) << i;
}

TEST(LinearRandK, NotFiniteIsSeenAndTheResidualStays) {
  std::vector<float> gradient(1000, 1), residual(1000, 2), values(1000), vector(10);
  gradient[123] = std::nanf("");
  LinearRandK randk({.ratio = 0.01}, 1000);
  const EncodeInput input{.gradient = gradient, .residual = residual};
  randk.project(0, input, 3, {}, std::as_writable_bytes(std::span(vector)));
  randk.finish(input, 3, 1, std::as_bytes(std::span(vector)), 1, values);
  EXPECT_TRUE(std::any_of(values.begin(), values.end(), [](float v) { return std::isnan(v); }));
  EXPECT_THAT(residual, Each(2));
}

// ---- threshold ----------------------------------------------------------------------------------

TEST(Threshold, SendsFromTheValueOn) {
  const std::vector<float> gradient{0.5F, -0.5F, 0.49F, 7, 0, -3};
  Threshold threshold(0.5F, WireType::kF32, 6);
  const Payload payload = encode(threshold, {.gradient = gradient});
  EXPECT_THAT(decode(threshold, payload, 6), ElementsAre(0.5F, -0.5F, 0, 7, 0, -3));
}

TEST(Threshold, MaySendNothingOrAll) {
  const std::vector<float> gradient = normal(5000, 2);
  Threshold none(1e30F, WireType::kF32, 5000);
  EXPECT_EQ(encode(none, {.gradient = gradient}).size(), kPayloadHeaderBytes);
  Threshold all(0, WireType::kF32, 5000);
  const Payload payload = encode(all, {.gradient = gradient});
  EXPECT_EQ(payload.size(), all.payload_bytes_max(5000));
  EXPECT_EQ(decode(all, payload, 5000), gradient);
}

// Expect: the payload of a selection made element by element, whichever way indices travel, and in
// the residual what was not sent; a partition of several blocks and a part of one.
TEST(Threshold, IsThePayloadOfThatSelection) {
  constexpr size_t kCount = 3 * 2048 + 77;
  std::vector<float> gradient = normal(kCount, 3);
  const std::vector<float> kept = normal(kCount, 4);
  gradient[3000] = 1e6F;  // overflows in f16
  for (const WireType type : {WireType::kF32, WireType::kFp16}) {
    for (const float value : {0.3F, 1.0F, 3.0F, 50.0F}) {  // three in four, a third, few, none
      std::vector<uint32_t> indices;
      std::vector<float> values, left = kept, want_left(kCount);
      for (uint32_t i = 0; i < kCount; ++i) {
        const float v = want_left[i] = gradient[i] + 0.5F * kept[i];
        if (std::abs(v) < value) continue;
        indices.push_back(i);
        values.push_back(v);
      }
      Payload want(sparse_bytes_max(type, kCount, kCount));
      const Selection selection{.indices = indices, .values = values};
      want.resize(encode_sparse(CodecId::kThreshold, type, kCount, selection, want));
      subtract_sent(want, selection, want_left);
      Threshold threshold(value, type, kCount);
      EXPECT_EQ(encode(threshold, {.gradient = gradient, .residual = left, .decay = 0.5F}), want);
      EXPECT_EQ(left, want_left);
    }
  }
}

// Expect: what was cleared and written before the bad element is as it was.
TEST(Threshold, GivesTheResidualBack) {
  constexpr size_t kCount = 3 * 2048;
  for (const WireType type : {WireType::kF32, WireType::kFp16}) {
    std::vector<float> kept(kCount), gradient(kCount);
    for (size_t i = 0; i < kCount; ++i) kept[i] = static_cast<float>(i % 13);
    kept[5000] = std::numeric_limits<float>::infinity();
    gradient[200] = type == WireType::kF32 ? 1e6F : 0;
    std::vector<float> residual = kept;
    Threshold threshold(6, type, kCount);
    const Payload payload = encode(threshold, {.gradient = gradient, .residual = residual});
    EXPECT_TRUE(is_not_finite(payload));
    EXPECT_EQ(residual, kept);
  }
}

}  // namespace
}  // namespace gradbus
