// The kernel of reductions, with the elements of the processor's scalar form.
#pragma once

#include "common/kernels/reduce_elements.h"
#include "compression/cuda/cuda_error_feedback.h"
#include "compression/cuda/kernels/grid.h"

namespace gradbus {

template <class Element>
struct ReduceWork {
  using Shared = NoShared;
  using Stored = typename Element::Stored;
  CudaReduce input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    const auto op = static_cast<ReduceOp>(input.op);
    const auto factors = Element::factors({op, input.divisor, input.prescale, input.postscale});
    for_elements(input.count, block, thread, [&](uint32_t i) {
      auto result = Element::enter(factors, load(0, i));
      for (uint32_t s = 1; s < input.source_count; ++s)
        result = Element::combine(op, result, Element::enter(factors, load(s, i)));
      const Stored stored = Element::narrow(Element::finish(factors, op, result));
      for (uint32_t t = 0; t < input.target_count; ++t)
        static_cast<Stored*>(input.targets[t])[i] = stored;
    });
  }

 private:
  GRADBUS_BOTH typename Element::Wide load(uint32_t source, uint32_t i) const {
    return Element::widen(static_cast<const Stored*>(input.sources[source])[i]);
  }
};

template <class Start>
void start_reduce(const CudaReduce& input, const Start& start) {
  with_element(static_cast<DType>(input.dtype),
               [&]<typename Element>(Element) { start(ReduceWork<Element>{input}); });
}

}  // namespace gradbus
