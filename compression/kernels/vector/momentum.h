// Momentum correction in one pass over gradient, momentum and residual (Lin et al. 2018, section
// 3.1). Any thread; the vectors do not overlap.
#pragma once

#include <span>

#include "compression/momentum_step.h"

namespace gradbus {

// With g = clip * gradient[i]:
//   m = momentum * m + g,    r = decay * r + m
//   nesterov: m = momentum * (m + g),    r = decay * r + (m + g)
void accumulate_momentum(const MomentumStep& step, std::span<const float> gradient,
                         std::span<float> momentum, std::span<float> residual);
// The definition, one element at a time.
void accumulate_momentum_scalar(const MomentumStep& step, std::span<const float> gradient,
                                std::span<float> momentum, std::span<float> residual);

// Undoes accumulate_momentum() of that gradient, except for rounding. Elements that overflowed
// become 0.
void undo_momentum(const MomentumStep& step, std::span<const float> gradient,
                   std::span<float> momentum, std::span<float> residual);

}  // namespace gradbus
