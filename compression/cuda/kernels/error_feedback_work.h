// Kernels of DGC's error feedback: momentum correction (compression/kernels/vector/momentum.h)
// before a partition is encoded; after it, momentum factor masking, and zeros for elements that
// have overflowed.
#pragma once

#include "compression/cuda/cuda_error_feedback.h"
#include "compression/cuda/kernels/selection.h"

namespace gradbus {

struct TakenWork {
  using Shared = NoShared;
  CudaMomentum input;

  GRADBUS_BOTH static uint32_t blocks() { return 1; }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t, uint32_t thread, NoShared&) const {
    if (thread == 0) *input.taken = kCudaTaken;
  }
};

struct LookWork {
  using Shared = NoShared;
  CudaMomentum input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    bool finite = true;
    for_elements(input.count, block, thread,
                 [&](uint32_t i) { finite = is_finite(input.gradient[i]) && finite; });
    if (!finite) lower_to(*input.taken, kCudaNotTaken);
  }
};

struct RememberWork {
  using Shared = NoShared;
  CudaMomentum input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    if (*input.taken == kCudaNotTaken) return;
    bool finite = true;
    for_elements(input.count, block, thread, [&](uint32_t i) {
      const float g = input.gradient[i];
      const float old = input.momentum[i];
      const bool nesterov = input.nesterov != 0;
      const float m = nesterov ? input.factor * (old + g) : input.factor * old + g;
      input.momentum[i] = m;
      const float r = input.decay * input.residual[i] + (nesterov ? m + g : m);
      input.residual[i] = r;
      finite = is_finite(r) && finite;
    });
    if (!finite) lower_to(*input.taken, kCudaOverflowed);
  }
};

// A partition that is not finite was not sent.
struct ForgetWork {
  using Shared = NoShared;
  CudaForget input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.entries); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    const SelectList list = select_list(const_cast<uint8_t*>(input.list), input.entries);
    if (list.header[1] != kNoElement) return;
    for_elements(smaller(list.header[0], input.entries), block, thread, [&](uint32_t e) {
      if (list.indices[e] < input.count) input.momentum[list.indices[e]] = 0;
    });
  }
};

// What the encoder was to see.
struct EndOverflowWork {
  using Shared = NoShared;
  CudaForget input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    if (*input.taken != kCudaOverflowed) return;
    for_elements(input.count, block, thread, [&](uint32_t i) {
      if (is_finite(input.residual[i]) && is_finite(input.momentum[i])) return;
      input.residual[i] = 0;
      input.momentum[i] = 0;
    });
  }
};

template <class Start>
void start_remember(const CudaMomentum& input, const Start& start) {
  start(TakenWork{input});
  start(LookWork{input});
  start(RememberWork{input});
}

template <class Start>
void start_forget(const CudaForget& input, const Start& start) {
  if (input.list != nullptr) start(ForgetWork{input});
  start(EndOverflowWork{input});
}

}  // namespace gradbus
