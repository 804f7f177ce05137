// The optimizers that shards step with: torch.optim's SGD, Adam (without amsgrad), AdamW and
// Adagrad, each one pass over the elements; and LAMB, two passes over the whole tensor.
//
// `before` and `after` may not overlap: the new parameters are made beside the old ones, which may
// be on their way to somebody. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/exchange_mode.h"

namespace gradbus {

// Vectors of as many elements as the parameters: sgd with momentum 1, adagrad 1, others 2.
uint32_t optimizer_vectors(const ServerOptimizer& optimizer);

struct OptimizerStep {
  uint64_t number = 1;  // of this step, first 1
  float learning_rate = 0;
  float gradient_scale = 1;  // the gradient is multiplied by this first
  std::span<const float> gradient;
  std::span<const float> before;
  std::span<float> after;
  std::span<float> first;  // what is remembered; zeros before step 1. Empty where there is none
  std::span<float> second;
};
void step(const ServerOptimizer& optimizer, const OptimizerStep& step);

}  // namespace gradbus
