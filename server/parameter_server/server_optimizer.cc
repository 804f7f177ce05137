#include "server/parameter_server/server_optimizer.h"

#include <cmath>

#include "compression/kernels/vector/statistics.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "server/parameter_server/server_optimizer.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

// Every target and the last elements use the same operations with one rounding each
// (-ffp-contract=off). So all targets have the same bits, and copies have the bits of their
// originals.
HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

template <typename Lane, class Body>
void ForAll(size_t count, const Body& body) {
  const hn::ScalableTag<Lane> d;
  const hn::CappedTag<Lane, 1> one;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) body(d, i);
  for (; i < count; ++i) body(one, i);
}

// The gradient after scaling and weight decay.
template <class D>
HWY_INLINE hn::Vec<D> Gradient(D d, const OptimizerStep& s, float decay, size_t i) {
  const auto scaled = hn::Mul(hn::Set(d, s.gradient_scale), hn::LoadU(d, &s.gradient[i]));
  return hn::Add(scaled, hn::Mul(hn::Set(d, decay), hn::LoadU(d, &s.before[i])));
}

// Updates memory[i] to kept * memory[i] + taken * value.
template <class D>
HWY_INLINE hn::Vec<D> Remember(D d, float kept, float* memory, float taken, hn::Vec<D> value) {
  const auto old = hn::Mul(hn::Set(d, kept), hn::LoadU(d, memory));
  const auto now = hn::Add(old, hn::Mul(hn::Set(d, taken), value));
  hn::StoreU(now, d, memory);
  return now;
}

// In the first step the momentum is the gradient itself, without dampening.
void Sgd(const ServerOptimizer& o, const OptimizerStep& s) {
  const auto decay = static_cast<float>(o.weight_decay);
  const auto momentum = static_cast<float>(o.momentum);
  const float taken = s.number == 1 ? 1.0F : static_cast<float>(1 - o.dampening);
  const bool remembers = !s.first.empty();
  ForAll<float>(s.before.size(), [&](auto d, size_t i) HWY_ATTR {
    auto gradient = Gradient(d, s, decay, i);
    if (remembers) {
      const auto m = Remember(d, momentum, &s.first[i], taken, gradient);
      gradient = o.nesterov ? hn::Add(gradient, hn::Mul(hn::Set(d, momentum), m)) : m;
    }
    const auto change = hn::Mul(hn::Set(d, s.learning_rate), gradient);
    hn::StoreU(hn::Sub(hn::LoadU(d, &s.before[i]), change), d, &s.after[i]);
  });
}

void Adam(const ServerOptimizer& o, const OptimizerStep& s, bool decoupled) {
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
  ForAll<float>(s.before.size(), [&](auto d, size_t i) HWY_ATTR {
    const auto gradient = Gradient(d, s, decay, i);
    const auto mean = Remember(d, beta1, &s.first[i], taken1, gradient);
    // (taken2 * gradient) * gradient, like torch's addcmul
    const auto taken = hn::Mul(hn::Mul(hn::Set(d, taken2), gradient), gradient);
    const auto square = Remember(d, beta2, &s.second[i], 1.0F, taken);
    const auto divisor = hn::Add(hn::Div(hn::Sqrt(square), hn::Set(d, root)), hn::Set(d, epsilon));
    const auto change = hn::Div(hn::Mul(hn::Set(d, step_size), mean), divisor);
    const auto stays = hn::Mul(hn::Set(d, kept), hn::LoadU(d, &s.before[i]));
    hn::StoreU(hn::Sub(stays, change), d, &s.after[i]);
  });
}

void Adagrad(const ServerOptimizer& o, const OptimizerStep& s) {
  const auto decay = static_cast<float>(o.weight_decay);
  const auto epsilon = static_cast<float>(o.epsilon);
  ForAll<float>(s.before.size(), [&](auto d, size_t i) HWY_ATTR {
    const auto gradient = Gradient(d, s, decay, i);
    const auto sum = Remember(d, 1.0F, &s.first[i], 1.0F, hn::Mul(gradient, gradient));
    const auto divisor = hn::Add(hn::Sqrt(sum), hn::Set(d, epsilon));
    const auto change = hn::Div(hn::Mul(hn::Set(d, s.learning_rate), gradient), divisor);
    hn::StoreU(hn::Sub(hn::LoadU(d, &s.before[i]), change), d, &s.after[i]);
  });
}

// Writes the update u to `after`.
void LambUpdate(const ServerOptimizer& o, const OptimizerStep& s) {
  const auto number = static_cast<double>(s.number);
  const auto mean = static_cast<float>(1 / (1 - std::pow(o.beta1, number)));
  const auto square = static_cast<float>(1 / (1 - std::pow(o.beta2, number)));
  const auto beta1 = static_cast<float>(o.beta1);
  const auto beta2 = static_cast<float>(o.beta2);
  const auto taken1 = static_cast<float>(1 - o.beta1);
  const auto taken2 = static_cast<float>(1 - o.beta2);
  const auto epsilon = static_cast<float>(o.epsilon);
  const auto decay = static_cast<float>(o.weight_decay);
  ForAll<float>(s.before.size(), [&](auto d, size_t i) HWY_ATTR {
    const auto gradient = hn::Mul(hn::Set(d, s.gradient_scale), hn::LoadU(d, &s.gradient[i]));
    const auto first = Remember(d, beta1, &s.first[i], taken1, gradient);
    const auto taken = hn::Mul(hn::Mul(hn::Set(d, taken2), gradient), gradient);
    const auto second = Remember(d, beta2, &s.second[i], 1.0F, taken);
    const auto divisor =
        hn::Add(hn::Sqrt(hn::Mul(hn::Set(d, square), second)), hn::Set(d, epsilon));
    const auto direction = hn::Div(hn::Mul(hn::Set(d, mean), first), divisor);
    const auto decayed = hn::Mul(hn::Set(d, decay), hn::LoadU(d, &s.before[i]));
    hn::StoreU(hn::Add(direction, decayed), d, &s.after[i]);
  });
}

void LambStep(double step_size, const OptimizerStep& s) {
  ForAll<double>(s.before.size(), [&](auto d, size_t i) HWY_ATTR {
    const hn::Rebind<float, decltype(d)> narrow;
    const auto before = hn::PromoteTo(d, hn::LoadU(narrow, &s.before[i]));
    const auto update = hn::PromoteTo(d, hn::LoadU(narrow, &s.after[i]));
    const auto after = hn::Sub(before, hn::Mul(hn::Set(d, step_size), update));
    hn::StoreU(hn::DemoteTo(narrow, after), narrow, &s.after[i]);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(Sgd);
HWY_EXPORT(Adam);
HWY_EXPORT(Adagrad);
HWY_EXPORT(LambUpdate);
HWY_EXPORT(LambStep);

namespace {

using Kind = ServerOptimizer::Kind;

double norm(std::span<const float> values) {
  double squares = 0;
  const size_t count = values.size();
  if (count > 0)
    take_statistics({.gradient = values.data(), .count = count, .bucket = count}, nullptr,
                    &squares);
  return std::sqrt(squares);
}

// You et al. 2020, algorithm 2, phi(z) = z: a step is as long as the rate times the parameters, for
// any gradient. Computed in f64, because the ratio of two norms may exceed an f32.
void lamb(const ServerOptimizer& o, const OptimizerStep& s) {
  HWY_DYNAMIC_DISPATCH(LambUpdate)(o, s);
  const double length = norm(s.before);
  const double update = norm(s.after);
  const double ratio = length > 0 && update > 0 ? length / update : 1;
  HWY_DYNAMIC_DISPATCH(LambStep)(ratio * s.learning_rate, s);
}

}  // namespace

uint32_t optimizer_vectors(const ServerOptimizer& optimizer) { return optimizer.vectors(); }

void step(const ServerOptimizer& optimizer, const OptimizerStep& s) {
  switch (optimizer.kind) {
    case Kind::kSgd: return HWY_DYNAMIC_DISPATCH(Sgd)(optimizer, s);
    case Kind::kAdam: return HWY_DYNAMIC_DISPATCH(Adam)(optimizer, s, false);
    case Kind::kAdamW: return HWY_DYNAMIC_DISPATCH(Adam)(optimizer, s, true);
    case Kind::kAdagrad: return HWY_DYNAMIC_DISPATCH(Adagrad)(optimizer, s);
    case Kind::kLamb: return lamb(optimizer, s);
  }
}

}  // namespace gradbus
#endif
