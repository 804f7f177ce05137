// The optimizers of shards: torch.optim's SGD, Adam (without amsgrad), AdamW and Adagrad, each with
// one pass over the elements; and LAMB with two passes over the whole tensor.
//
// `before` and `after` may not overlap, because the old parameters may still be sent while the new
// ones are written. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "common/policy/sync_mode.h"

namespace gradbus {

// The number of vectors with as many elements as the parameters: sgd with momentum 1, adagrad 1,
// others 2.
uint32_t optimizer_vectors(const ServerOptimizer& optimizer);

struct OptimizerStep {
  uint64_t number = 1;  // of this step, from 1
  float learning_rate = 0;
  float gradient_scale = 1;  // the gradient is multiplied by this first
  std::span<const float> gradient;
  std::span<const float> before;
  std::span<float> after;
  std::span<float> first;  // optimizer state; zeros before step 1. Empty if unused
  std::span<float> second;
};
void step(const ServerOptimizer& optimizer, const OptimizerStep& step);

}  // namespace gradbus
