// The numbers of one step of momentum correction (kernels/vector/momentum.h has the formulas).
#pragma once

namespace gradbus {

struct MomentumStep {
  float momentum = 0.9F;
  bool nesterov = false;
  float clip = 1;   // the gradient is multiplied by this before all else
  float decay = 1;  // of the residual
};

}  // namespace gradbus
