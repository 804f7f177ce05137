// Expected values: the update rules of the papers (and of torch.optim's documentation), written
// here in doubles, element by element.
#include "worker_agent/shard/server_optimizer.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

namespace gradbus {
namespace {

using Kind = ServerOptimizer::Kind;

// One parameter, in doubles.
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
  for (size_t i = 0; i < kCount; ++i)
    EXPECT_NEAR(before[i], expected[i].parameter, 2e-5 * (1 + std::abs(expected[i].parameter)));
}

INSTANTIATE_TEST_SUITE_P(All, ServerOptimizers, testing::Range(size_t{0}, variants().size()));

}  // namespace
}  // namespace gradbus
