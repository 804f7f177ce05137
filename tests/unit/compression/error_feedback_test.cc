#include "compression/error_feedback.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compression/kernels/vector/momentum.h"
#include "compression/registry.h"
#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using testing::ElementsAre;
using testing::FloatEq;
using testing::Pointwise;

// By hand, momentum 0.5: m1 = g1, r1 = m1; m2 = 0.5 m1 + g2, r2 = r1 + m2.
TEST(ErrorFeedback, DgcAccumulatesVelocity) {
  ErrorFeedback memory({.kind = ErrorFeedbackKind::kDgc, .momentum = 0.5F}, 2);
  const std::vector<float> first{1, -2};
  const std::vector<float> second{3, 4};
  memory.compensate(first, 0, 1);
  const EncodeInput input = memory.compensate(second, 0, 2);
  EXPECT_TRUE(input.gradient.empty());
  EXPECT_THAT(memory.momentum(), ElementsAre(3.5F, 3.0F));
  EXPECT_THAT(input.residual, ElementsAre(4.5F, 1.0F));
}

// m1 = 0.5 (0 + 1) = 0.5, r1 = 0 + 0.5 + 1 = 1.5; m2 = 0.5 (0.5 + 2) = 1.25, r2 = 1.5 + 1.25 + 2.
TEST(ErrorFeedback, DgcNesterov) {
  ErrorFeedback memory({.kind = ErrorFeedbackKind::kDgc, .momentum = 0.5F, .nesterov = true}, 1);
  memory.compensate(std::vector<float>{1}, 0, 1);
  const EncodeInput input = memory.compensate(std::vector<float>{2}, 0, 2);
  EXPECT_THAT(input.residual, ElementsAre(4.75F));
}

// |(3, 4)| = 5 is clipped to 1: (0.6, 0.8).
TEST(ErrorFeedback, DgcClipsTheLocalGradient) {
  ErrorFeedback memory({.kind = ErrorFeedbackKind::kDgc, .momentum = 0, .clip_norm = 1}, 2);
  memory.compensate(std::vector<float>{3, 4}, 0, 1);
  EXPECT_THAT(memory.momentum(), Pointwise(FloatEq(), {0.6F / 1.0000002F, 0.8F / 1.0000002F}));
}

// Of odd lengths and offsets, on every SIMD target: the bits of the definition.
TEST(ErrorFeedback, MomentumOnEachTarget) {
  std::vector<float> values(3000);
  for (size_t i = 0; i < values.size(); ++i) values[i] = std::sin(static_cast<float>(i));
  on_each_target([&] {
    for (const bool nesterov : {false, true}) {
      for (const size_t count : {0, 1, 7, 16, 63, 515}) {
        const MomentumStep step{
            .momentum = 0.9F, .nesterov = nesterov, .clip = 0.3F, .decay = 0.7F};
        const std::span<const float> gradient(&values[3], count);
        std::vector<float> m(values.begin() + 1000, values.begin() + 1600);
        std::vector<float> r(values.begin() + 2000, values.begin() + 2600);
        std::vector<float> m_scalar = m;
        std::vector<float> r_scalar = r;
        accumulate_momentum(step, gradient, {&m[1], count}, {&r[5], count});
        accumulate_momentum_scalar(step, gradient, {&m_scalar[1], count}, {&r_scalar[5], count});
        EXPECT_EQ(m, m_scalar) << count;
        EXPECT_EQ(r, r_scalar) << count;
      }
    }
  });
}

TEST(ErrorFeedback, AGradientThatIsNotFiniteChangesNothing) {
  ErrorFeedback memory({.kind = ErrorFeedbackKind::kDgc}, 2);
  memory.compensate(std::vector<float>{1, 2}, 0, 1);
  const std::vector<float> bad{std::numeric_limits<float>::infinity(), 1};
  const EncodeInput input = memory.compensate(bad, 0, 2);
  EXPECT_EQ(input.gradient.data(), bad.data());
  EXPECT_THAT(memory.momentum(), ElementsAre(1, 2));
  EXPECT_THAT(memory.residual(), ElementsAre(1, 2));
}

// What was taken in before the NaN turned up is undone; exactly, of small whole numbers.
TEST(ErrorFeedback, ALongGradientThatIsNotFiniteIsUndone) {
  for (const bool nesterov : {false, true}) {
    ErrorFeedback memory({.kind = ErrorFeedbackKind::kDgc, .momentum = 0.5F, .nesterov = nesterov},
                         (size_t{1} << 20) + 3000);
    std::vector<float> gradient(memory.residual().size());
    for (size_t i = 0; i < gradient.size(); ++i) gradient[i] = static_cast<float>(i % 8);
    memory.compensate(gradient, 0, 1);
    const std::vector<float> residual(memory.residual().begin(), memory.residual().end());
    const std::vector<float> momentum(memory.momentum().begin(), memory.momentum().end());
    gradient[gradient.size() - 5] = std::numeric_limits<float>::quiet_NaN();
    EXPECT_FALSE(memory.compensate(gradient, 0, 2).gradient.empty());
    EXPECT_TRUE(std::equal(residual.begin(), residual.end(), memory.residual().begin()));
    EXPECT_TRUE(std::equal(momentum.begin(), momentum.end(), memory.momentum().begin()));
  }
}

// Two gradients whose element kHuge overflows with momentum 0.9, the others by torch's formula.
constexpr size_t kHuge = 70;

std::vector<float> huge_gradient(size_t count, uint64_t round) {
  std::vector<float> gradient(count);
  for (size_t i = 0; i < count; ++i) gradient[i] = std::sin(static_cast<float>(i + 7 * round));
  if (round < 3) gradient[kHuge] = 3e38F;
  return gradient;
}

bool all_finite(std::span<const float> values) {
  return std::ranges::all_of(values, [](float value) { return std::isfinite(value); });
}

// Expect: all see the round that overflows, and nobody one after it; of the other elements nothing
// is lost, with what the codec has sent.
TEST(ErrorFeedback, AnOverflowEndsWithItsRound) {
  for (const size_t count : {size_t{300}, (size_t{1} << 20) + 3000}) {
    for (const char* const text :
         {"dgc:ratio=0.01,masking=no", "dgc:ratio=0.01,values=fp16,masking=no",
          "topk:ratio=0.01,ef=dgc,masking=no", "dgc:ratio=0.01,nesterov=yes,masking=no",
          "threshold:value=0.5,ef=dgc,masking=no", "int8:ef=dgc,masking=no",
          "bf16:ef=dgc,masking=no"}) {
      SCOPED_TRACE(std::string(text) + " of " + std::to_string(count));
      const CompressionSpec spec = parse_compression(text).take();
      const ErrorFeedbackOptions options = error_feedback_options(spec, 2);
      const auto codec = make_codec(spec, {.count_max = count});
      ErrorFeedback memory(options, count);
      std::vector<float> m(count), sent(count), total(count);
      std::vector<std::byte> payload(codec->payload_bytes_max(count));
      bool overflowed = false;
      for (uint64_t round = 1; round <= 4; ++round) {
        const std::vector<float> gradient = huge_gradient(count, round);
        const EncodeInput input = memory.compensate(gradient, round, round);
        const auto one = std::span(payload).first(codec->encode(input, payload));
        memory.update(*codec, one);
        codec->decode(one, 1, sent);
        EXPECT_TRUE(all_finite(memory.residual()) && all_finite(memory.momentum())) << round;
        overflowed |= !all_finite(sent);
        EXPECT_TRUE(round <= 2 || all_finite(sent)) << round;
        if (round == 2) {
          EXPECT_EQ(memory.momentum()[kHuge], 0);
          EXPECT_EQ(memory.residual()[kHuge], 0);
        }
        for (size_t i = 0; i < count; ++i) {
          const float g = gradient[i];
          m[i] = options.nesterov ? 0.9F * (m[i] + g) : 0.9F * m[i] + g;
          if (i != kHuge)
            total[i] +=
                (options.nesterov ? m[i] + g : m[i]) - (all_finite({&sent[i], 1}) ? sent[i] : 0);
        }
      }
      EXPECT_TRUE(overflowed);
      for (size_t i = 0; i < count; ++i) {
        if (i == kHuge) continue;
        ASSERT_FLOAT_EQ(memory.momentum()[i], m[i]) << i;
        ASSERT_NEAR(memory.residual()[i], total[i], 1e-4) << i;
      }
    }
  }
}

// Expect: where a gradient is not finite either, what overflowed before that was found is 0, and
// the rest as it was.
TEST(ErrorFeedback, AnOverflowIsUndone) {
  constexpr size_t kCount = (size_t{1} << 20) + 3000;
  ErrorFeedback memory({.kind = ErrorFeedbackKind::kDgc, .momentum = 0.5F}, kCount);
  std::vector<float> gradient(kCount, 2);
  gradient[kHuge] = 3e38F;
  memory.compensate(gradient, 0, 1);
  gradient[kCount - 5] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(memory.compensate(gradient, 0, 2).gradient.empty());
  for (size_t i = 0; i < kCount; ++i) {
    ASSERT_EQ(memory.momentum()[i], i == kHuge ? 0 : 2) << i;
    ASSERT_EQ(memory.residual()[i], i == kHuge ? 0 : 2) << i;
  }
}

// Expect: the same of a codec whose vectors are added in flight.
TEST(ErrorFeedback, AnOverflowOfALinearCodecEndsWithItsRound) {
  const CompressionSpec spec = parse_compression("fp16:ef=dgc").take();
  const auto codec = spec.codec->make_linear(spec.options, {.count_max = 300});
  ErrorFeedback memory(error_feedback_options(spec, 2), 300);
  std::vector<float> result(300);
  std::vector<std::byte> vector(2 * 300);
  for (uint64_t round = 1; round <= 4; ++round) {
    const std::vector<float> gradient = huge_gradient(300, round);
    const EncodeInput input = memory.compensate(gradient, round, round);
    codec->project(0, input, round, {}, vector);
    codec->finish(input, round, 1, vector, 1, result);
    memory.update(*codec);
    EXPECT_EQ(all_finite(result), round > 2) << round;
    EXPECT_TRUE(all_finite(memory.residual()) && all_finite(memory.momentum())) << round;
  }
}

TEST(ErrorFeedback, FollowsTheLearningRate) {
  ErrorFeedback memory({.kind = ErrorFeedbackKind::kDgc}, 1);
  memory.compensate(std::vector<float>{3}, 0, 1);
  memory.rescale(0.5F);
  EXPECT_THAT(memory.residual(), ElementsAre(1.5F));
}

}  // namespace
}  // namespace gradbus
