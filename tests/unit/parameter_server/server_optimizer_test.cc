// Tests the shard's optimizers. Expected values follow the update rules of the papers (and of
// torch.optim's documentation), computed here in doubles, element by element.
#include "server/parameter_server/server_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "tests/unit/compression/each_target.h"

namespace gradbus {
namespace {

using Kind = ServerOptimizer::Kind;

// One parameter in doubles.
struct Reference {
  double parameter = 0;
  double first = 0;
  double second = 0;
  int steps = 0;

  void step(const ServerOptimizer& o, double rate, double g) {
    ++steps;
    if (o.kind == Kind::kAdamW) {
      parameter -= rate * o.weight_decay * parameter;
    } else {
      g += o.weight_decay * parameter;
    }
    switch (o.kind) {
      case Kind::kSgd:
        if (o.momentum != 0) {
          first = steps == 1 ? g : o.momentum * first + (1 - o.dampening) * g;
          g = o.nesterov ? g + o.momentum * first : first;
        }
        parameter -= rate * g;
        break;
      case Kind::kAdam:
      case Kind::kAdamW: {
        first = o.beta1 * first + (1 - o.beta1) * g;
        second = o.beta2 * second + (1 - o.beta2) * g * g;
        const double mean = first / (1 - std::pow(o.beta1, steps));
        const double square = second / (1 - std::pow(o.beta2, steps));
        parameter -= rate * mean / (std::sqrt(square) + o.epsilon);
        break;
      }
      case Kind::kAdagrad:
        first += g * g;
        parameter -= rate * g / (std::sqrt(first) + o.epsilon);
        break;
      case Kind::kLamb: FAIL() << "is of whole tensors: whole_parameters_test.cc";
    }
  }
};

ServerOptimizer of(Kind kind) {
  ServerOptimizer optimizer;
  optimizer.kind = kind;
  return optimizer;
}

std::vector<ServerOptimizer> variants() {
  std::vector<ServerOptimizer> all = {of(Kind::kSgd), of(Kind::kAdam), of(Kind::kAdamW),
                                      of(Kind::kAdagrad)};
  for (const size_t index : {0u, 1u, 2u, 3u}) {
    all.push_back(all[index]);
    all.back().weight_decay = 0.02;
  }
  ServerOptimizer momentum = of(Kind::kSgd);
  momentum.momentum = 0.9;
  all.push_back(momentum);
  momentum.dampening = 0.3;
  all.push_back(momentum);
  momentum.dampening = 0;
  momentum.nesterov = true;
  momentum.weight_decay = 0.1;
  all.push_back(momentum);
  ServerOptimizer betas = of(Kind::kAdam);
  betas.beta1 = 0.5;
  betas.beta2 = 0.7;
  betas.epsilon = 1e-3;
  all.push_back(betas);
  return all;
}

class ServerOptimizers : public testing::TestWithParam<size_t> {};

// Expect: twenty steps with changing rates and scaled gradients agree with the formula.
TEST_P(ServerOptimizers, FollowTheFormula) {
  const ServerOptimizer optimizer = variants()[GetParam()];
  constexpr size_t kCount = 37;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<Reference> expected(kCount);
  std::vector<float> before(kCount);
  std::vector<float> after(kCount);
  std::vector<float> first(kCount);
  std::vector<float> second(kCount);
  std::vector<float> gradient(kCount);
  for (size_t i = 0; i < kCount; ++i) expected[i].parameter = before[i] = normal(random);
  for (uint64_t number = 1; number <= 20; ++number) {
    const float rate = 0.1F / static_cast<float>(number);
    for (size_t i = 0; i < kCount; ++i) {
      gradient[i] = normal(random);
      expected[i].step(optimizer, rate, 0.25 * gradient[i]);
    }
    OptimizerStep one{number, rate, 0.25F, gradient, before, after, {}, {}};
    if (optimizer_vectors(optimizer) > 0) one.first = first;
    if (optimizer_vectors(optimizer) > 1) one.second = second;
    step(optimizer, one);
    before = after;
  }
  for (size_t i = 0; i < kCount; ++i) {
    EXPECT_NEAR(before[i], expected[i].parameter, 2e-5 * (1 + std::abs(expected[i].parameter)));
    EXPECT_NEAR(second[i], expected[i].second, 4e-6 * expected[i].second);
  }
}

struct Stepped {
  std::vector<float> after, first, second;
  bool operator==(const Stepped&) const = default;
};

// Makes two steps on elements at `offset` of a vector. With `one_by_one`, each element is a
// separate tensor.
Stepped stepped(const ServerOptimizer& optimizer, size_t count, size_t offset, bool one_by_one) {
  std::mt19937 random(static_cast<uint32_t>(count));
  std::normal_distribution<float> normal;
  std::vector<float> gradient(offset + count), before(offset + count);
  for (float& g : gradient) g = normal(random);
  for (float& w : before) w = normal(random);
  Stepped got{before, std::vector<float>(offset + count), std::vector<float>(offset + count)};
  const uint32_t vectors = optimizer_vectors(optimizer);
  const size_t stride = one_by_one ? 1 : count;
  for (uint64_t number = 1; number <= 2; ++number) {
    for (size_t i = offset; i < offset + count; i += stride) {
      OptimizerStep one;
      one.number = number;
      one.learning_rate = 0.1F;
      one.gradient_scale = 0.25F;
      one.gradient = std::span(gradient).subspan(i, stride);
      one.before = std::span(before).subspan(i, stride);
      one.after = std::span(got.after).subspan(i, stride);
      if (vectors > 0) one.first = std::span(got.first).subspan(i, stride);
      if (vectors > 1) one.second = std::span(got.second).subspan(i, stride);
      step(optimizer, one);
    }
    before = got.after;
  }
  return got;
}

// Expect: every target, at odd lengths and offsets, has the bits of the element-by-element steps.
TEST_P(ServerOptimizers, SameBitsOnAllTargets) {
  const ServerOptimizer optimizer = variants()[GetParam()];
  for (const size_t count : {1u, 3u, 8u, 17u, 64u, 101u}) {
    const Stepped expected = stepped(optimizer, count, 1, true);
    on_each_target(
        [&] { EXPECT_EQ(stepped(optimizer, count, 1, false), expected) << count << " elements"; });
  }
}

// Expect: the same for LAMB: a whole tensor has the bits of the simplest target.
TEST(Lamb, SameBitsOnAllTargets) {
  ServerOptimizer optimizer = of(Kind::kLamb);
  optimizer.weight_decay = 0.02;
  for (const size_t count : {1u, 3u, 8u, 17u, 64u, 101u}) {
    const Stepped expected = stepped(optimizer, count, 0, false);
    on_each_target(
        [&] { EXPECT_EQ(stepped(optimizer, count, 0, false), expected) << count << " elements"; });
  }
}

// Expect: if a norm is zero, the ratio of both is one. Then parameters of zeros move by the rate,
// and gradients of zeros move nothing. The same holds for gradients so small that the ratio exceeds
// an f32.
TEST(Lamb, NormsOfZero) {
  ServerOptimizer optimizer = of(Kind::kLamb);
  optimizer.epsilon = 0.5;
  const auto stepped = [&](const std::vector<float>& parameters, std::vector<float> gradient) {
    std::vector<float> after(parameters.size());
    std::vector<float> first(parameters.size());
    std::vector<float> second(parameters.size());
    step(optimizer, {1, 0.1F, 1, gradient, parameters, after, first, second});
    return after;
  };
  const std::vector<float> from_zero = stepped({0, 0, 0}, {1, -1, 0});
  EXPECT_FLOAT_EQ(from_zero[0], -0.1F / 1.5F);
  EXPECT_FLOAT_EQ(from_zero[1], 0.1F / 1.5F);
  EXPECT_EQ(from_zero[2], 0);
  EXPECT_EQ(stepped({3, 4, 5}, {0, 0, 0}), (std::vector<float>{3, 4, 5}));
  // The step is as long as a tenth of the parameters, 5, in the direction of the only nonzero
  // gradient.
  const std::vector<float> tiny = stepped({3, 4, 0}, {0, 1e-42F, 0});
  EXPECT_EQ(tiny[0], 3);
  EXPECT_NEAR(tiny[1], 4 - 0.5, 1e-3);
  EXPECT_EQ(tiny[2], 0);
}

INSTANTIATE_TEST_SUITE_P(All, ServerOptimizers, testing::Range(size_t{0}, variants().size()));

}  // namespace
}  // namespace gradbus
