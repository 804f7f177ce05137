#include "compression/cuda/cuda_memory.h"

#include "compression/memory.h"

namespace gradbus {

std::optional<CudaMomentum> cuda_momentum(const MemoryOptions& options) {
  if (options.kind != MemoryKind::kDgc || options.clip_norm > 0) return std::nullopt;
  CudaMomentum step;
  step.factor = options.momentum;
  step.decay = options.decay;
  step.nesterov = options.nesterov ? 1 : 0;
  return step;
}

}  // namespace gradbus
