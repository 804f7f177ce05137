#include "compression/cuda/cuda_error_feedback.h"

#include "compression/error_feedback.h"

namespace gradbus {

std::optional<CudaMomentum> cuda_momentum(const ErrorFeedbackOptions& options) {
  if (options.kind != ErrorFeedbackKind::kDgc || options.clip_norm > 0) return std::nullopt;
  CudaMomentum step;
  step.factor = options.momentum;
  step.decay = options.decay;
  step.nesterov = options.nesterov ? 1 : 0;
  return step;
}

}  // namespace gradbus
