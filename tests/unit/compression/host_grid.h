// Runs kernels of compression/cuda on the processor: every block, phase and thread in order, or all
// of them backwards, which must make no difference. For tests: it is what can be proved of kernels
// where there is no GPU.
#pragma once

#include <memory>

#include "compression/cuda/kernels/grid.h"

namespace gradbus {

enum class GridOrder : uint8_t { kForwards, kBackwards };

template <class Work>
void run_on_host(const Work& work, GridOrder order) {
  const auto turned = [&](uint32_t i, uint32_t n) {
    return order == GridOrder::kForwards ? i : n - 1 - i;
  };
  const auto shared = std::make_unique<typename Work::Shared>();
  for (uint32_t b = 0; b < work.blocks(); ++b)
    for (uint32_t phase = 0; phase < work.phases(); ++phase)
      for (uint32_t t = 0; t < kBlockThreads; ++t)
        work.run(phase, turned(b, work.blocks()), turned(t, kBlockThreads), *shared);
}

}  // namespace gradbus
