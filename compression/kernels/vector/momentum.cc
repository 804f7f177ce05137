#include "compression/kernels/vector/momentum.h"

#include <cmath>

#include "common/check.h"
#include "compression/kernels/vector/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/vector/momentum.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;

// Prefetches this many elements ahead, 13 % of dgc's time. The gradient is prefetched twice as far
// ahead, because memory.cc checks each block of it for NaN first.
constexpr size_t kAhead = 1024;

// Processes whole vectors from the front; returns the number of elements.
template <bool kNesterov>
size_t Accumulate(const MomentumStep& step, const float* gradient, float* momentum, float* residual,
                  size_t count) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const auto mu = hn::Set(d, step.momentum);
  const auto clip = hn::Set(d, step.clip);
  const auto decay = hn::Set(d, step.decay);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    gradbus::prefetch(gradient + i + 2 * kAhead);
    gradbus::prefetch(momentum + i + kAhead);
    gradbus::prefetch(residual + i + kAhead);
    const auto g = hn::Mul(clip, hn::LoadU(d, gradient + i));
    const auto old = hn::LoadU(d, momentum + i);
    const auto m = kNesterov ? hn::Mul(mu, hn::Add(old, g)) : hn::Add(hn::Mul(mu, old), g);
    hn::StoreU(m, d, momentum + i);
    const auto kept = hn::Mul(decay, hn::LoadU(d, residual + i));
    hn::StoreU(hn::Add(kept, kNesterov ? hn::Add(m, g) : m), d, residual + i);
  }
  return i;
}

size_t AccumulateMomentum(const MomentumStep& step, const float* gradient, float* momentum,
                          float* residual, size_t count) {
  return step.nesterov ? Accumulate<true>(step, gradient, momentum, residual, count)
                       : Accumulate<false>(step, gradient, momentum, residual, count);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(AccumulateMomentum);

void accumulate_momentum_scalar(const MomentumStep& step, std::span<const float> gradient,
                                std::span<float> momentum, std::span<float> residual) {
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float g = step.clip * gradient[i];
    const float m =
        step.nesterov ? step.momentum * (momentum[i] + g) : step.momentum * momentum[i] + g;
    momentum[i] = m;
    residual[i] = step.decay * residual[i] + (step.nesterov ? m + g : m);
  }
}

void accumulate_momentum(const MomentumStep& step, std::span<const float> gradient,
                         std::span<float> momentum, std::span<float> residual) {
  GRADBUS_CHECK(momentum.size() == gradient.size() && residual.size() == gradient.size());
  const size_t done = HWY_DYNAMIC_DISPATCH(AccumulateMomentum)(
      step, gradient.data(), momentum.data(), residual.data(), gradient.size());
  accumulate_momentum_scalar(step, gradient.subspan(done), momentum.subspan(done),
                             residual.subspan(done));
}

// After a factor of 0 the old value is lost, but it does not count in the next step either.
void undo_momentum(const MomentumStep& step, std::span<const float> gradient,
                   std::span<float> momentum, std::span<float> residual) {
  const auto divided = [](float value, float factor) { return factor == 0 ? 0 : value / factor; };
  for (size_t i = 0; i < gradient.size(); ++i) {
    const float g = step.clip * gradient[i];
    const float m = momentum[i];
    residual[i] = divided(residual[i] - (step.nesterov ? m + g : m), step.decay);
    momentum[i] = step.nesterov ? divided(m, step.momentum) - g : divided(m - g, step.momentum);
    if (!std::isfinite(residual[i]) || !std::isfinite(momentum[i])) residual[i] = momentum[i] = 0;
  }
}

}  // namespace gradbus
#endif
