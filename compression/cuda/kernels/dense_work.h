// Kernels of none, fp16 and bf16 (codecs/dense_codec.h). One phase, nothing shared.
#pragma once

#include "compression/cuda/kernels/elements.h"
#include "compression/cuda/kernels/grid.h"

namespace gradbus {

template <class Element>
struct DenseEncodeWork {
  using Shared = NoShared;
  using Bits = typename Element::Bits;
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, Shared&) const {
    if (block == 0 && thread == 0) store_header(input, input.count * sizeof(Bits));
    auto* to = reinterpret_cast<Bits*>(input.payload + kPayloadHeaderBytes);
    for_elements(input.count, block, thread, [&](uint32_t i) {
      const float value = compensated(input, i);
      const Bits bits = Element::narrow(value);
      to[i] = bits;
      if (input.residual == nullptr) return;
      const float lost = value - Element::widen(bits);
      if (is_finite(lost)) input.residual[i] = lost;
    });
  }
};

template <class Element>
struct DenseApplyWork {
  using Shared = NoShared;
  CudaApply input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, Shared&) const {
    const auto* from =
        reinterpret_cast<const typename Element::Bits*>(input.payload + kPayloadHeaderBytes);
    for_elements(input.count, block, thread, [&](uint32_t i) {
      const float value = Element::widen(from[i]) * input.scale;
      input.to[i] = input.add != 0 ? input.to[i] + value : value;
    });
  }
};

}  // namespace gradbus
