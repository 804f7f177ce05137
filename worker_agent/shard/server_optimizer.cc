#include "worker_agent/shard/server_optimizer.h"

#include <cmath>

#include "compression/kernels/statistics.h"

namespace gradbus {
namespace {

using Kind = ServerOptimizer::Kind;

// The first step's momentum is the gradient itself, without dampening.
void sgd(const ServerOptimizer& o, const OptimizerStep& s) {
  const auto decay = static_cast<float>(o.weight_decay);
  const auto momentum = static_cast<float>(o.momentum);
  const float taken = s.number == 1 ? 1.0F : static_cast<float>(1 - o.dampening);
  for (size_t i = 0; i < s.before.size(); ++i) {
    float gradient = s.gradient_scale * s.gradient[i] + decay * s.before[i];
    if (!s.first.empty()) {
      s.first[i] = momentum * s.first[i] + taken * gradient;
      gradient = o.nesterov ? gradient + momentum * s.first[i] : s.first[i];
    }
    s.after[i] = s.before[i] - s.learning_rate * gradient;
  }
}

void adam(const ServerOptimizer& o, const OptimizerStep& s, bool decoupled) {
  const auto number = static_cast<double>(s.number);
  const double rate = s.learning_rate;
  const auto step_size = static_cast<float>(rate / (1 - std::pow(o.beta1, number)));
  const auto root = static_cast<float>(std::sqrt(1 - std::pow(o.beta2, number)));
  const auto beta1 = static_cast<float>(o.beta1);
  const auto beta2 = static_cast<float>(o.beta2);
  const auto taken1 = static_cast<float>(1 - o.beta1);  // 1 - 0.999F would be 1.3e-5 off
  const auto taken2 = static_cast<float>(1 - o.beta2);
  const auto epsilon = static_cast<float>(o.epsilon);
  const float decay = decoupled ? 0.0F : static_cast<float>(o.weight_decay);
  const float kept = decoupled ? static_cast<float>(1 - rate * o.weight_decay) : 1.0F;
  for (size_t i = 0; i < s.before.size(); ++i) {
    const float gradient = s.gradient_scale * s.gradient[i] + decay * s.before[i];
    s.first[i] = beta1 * s.first[i] + taken1 * gradient;
    s.second[i] = beta2 * s.second[i] + taken2 * gradient * gradient;
    const float divisor = std::sqrt(s.second[i]) / root + epsilon;
    s.after[i] = kept * s.before[i] - step_size * s.first[i] / divisor;
  }
}

void adagrad(const ServerOptimizer& o, const OptimizerStep& s) {
  const auto decay = static_cast<float>(o.weight_decay);
  const auto epsilon = static_cast<float>(o.epsilon);
  for (size_t i = 0; i < s.before.size(); ++i) {
    const float gradient = s.gradient_scale * s.gradient[i] + decay * s.before[i];
    s.first[i] += gradient * gradient;
    s.after[i] = s.before[i] - s.learning_rate * gradient / (std::sqrt(s.first[i]) + epsilon);
  }
}

double norm(std::span<const float> values) {
  double squares = 0;
  const size_t count = values.size();
  if (count > 0)
    take_statistics({.gradient = values.data(), .count = count, .bucket = count}, nullptr,
                    &squares);
  return std::sqrt(squares);
}

// You et al. 2020, algorithm 2, phi(z) = z: a step is as long as the rate times the parameters,
// whatever the gradients. `after` is the update u first. In f64, for the ratio of two norms may
// exceed an f32.
void lamb(const ServerOptimizer& o, const OptimizerStep& s) {
  const auto number = static_cast<double>(s.number);
  const auto mean = static_cast<float>(1 / (1 - std::pow(o.beta1, number)));
  const auto square = static_cast<float>(1 / (1 - std::pow(o.beta2, number)));
  const auto beta1 = static_cast<float>(o.beta1);
  const auto beta2 = static_cast<float>(o.beta2);
  const auto taken1 = static_cast<float>(1 - o.beta1);
  const auto taken2 = static_cast<float>(1 - o.beta2);
  const auto epsilon = static_cast<float>(o.epsilon);
  const auto decay = static_cast<float>(o.weight_decay);
  for (size_t i = 0; i < s.before.size(); ++i) {
    const float gradient = s.gradient_scale * s.gradient[i];
    s.first[i] = beta1 * s.first[i] + taken1 * gradient;
    s.second[i] = beta2 * s.second[i] + taken2 * gradient * gradient;
    s.after[i] =
        mean * s.first[i] / (std::sqrt(square * s.second[i]) + epsilon) + decay * s.before[i];
  }
  const double length = norm(s.before);
  const double update = norm(s.after);
  const double ratio = length > 0 && update > 0 ? length / update : 1;
  const double step_size = ratio * s.learning_rate;
  for (size_t i = 0; i < s.before.size(); ++i)
    s.after[i] = static_cast<float>(s.before[i] - step_size * s.after[i]);
}

}  // namespace

uint32_t optimizer_vectors(const ServerOptimizer& optimizer) {
  switch (optimizer.kind) {
    case Kind::kSgd: return optimizer.momentum == 0 ? 0 : 1;
    case Kind::kAdagrad: return 1;
    case Kind::kAdam:
    case Kind::kAdamW:
    case Kind::kLamb: return 2;
  }
  return 0;
}

void step(const ServerOptimizer& optimizer, const OptimizerStep& s) {
  switch (optimizer.kind) {
    case Kind::kSgd: return sgd(optimizer, s);
    case Kind::kAdam: return adam(optimizer, s, false);
    case Kind::kAdamW: return adam(optimizer, s, true);
    case Kind::kAdagrad: return adagrad(optimizer, s);
    case Kind::kLamb: return lamb(optimizer, s);
  }
}

}  // namespace gradbus
