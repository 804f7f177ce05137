// Kernels of dgc's threshold (codecs/dgc.h, Largest::about): the same samples, the same threshold
// and its lowerings. Those are known before the partition is read, so one pass counts what each
// lets through.
#pragma once

#include "compression/cuda/kernels/selection.h"
#include "compression/random.h"

namespace gradbus {

struct SampleWork {
  using Shared = NoShared;
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.choice.samples); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    const SelectMemory memory = select_memory(input);
    const uint32_t stride = input.choice.stride;
    const uint32_t start = random_u32(input.seed, 0) % stride;
    for_elements(input.choice.samples, block, thread,
                 [&](uint32_t i) { memory.samples[i] = compensated(input, start + i * stride); });
  }
};

// One thread, after the two ranks of the sample are found.
struct LevelsWork {
  using Shared = NoShared;
  CudaEncode input;

  GRADBUS_BOTH static uint32_t blocks() { return 1; }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t, uint32_t thread, NoShared&) const {
    if (thread != 0) return;
    SelectState& state = *select_memory(input).state;
    float threshold = float_of(state.prefix[0]);
    state.levels[0] = smaller(state.prefix[1], kKeyInfinity);
    for (uint32_t i = 1; i < kLevels; ++i) {
      state.levels[i] = magnitude_key(threshold);
      threshold *= 0.8F;
    }
    state.prefix[0] = 0;  // the partition's, should it come to that
    state.rank[0] = input.choice.entries;
  }
};

struct ReachWork {
  struct Shared {
    uint32_t reached[kLevels];
  };
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return sum_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 3; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    SelectState& state = *select_memory(input).state;
    if (phase == 1) return gather(state, block, thread, shared);
    if (thread >= kLevels) return;
    uint32_t& own = shared.reached[thread];
    if (phase == 0)
      own = 0;
    else if (own != 0)
      add_to(state.reached[thread], own);
  }

 private:
  // Few elements come as far as the lowest level.
  GRADBUS_BOTH void gather(const SelectState& state, uint32_t block, uint32_t thread,
                           Shared& shared) const {
    const uint32_t lowest = smaller(state.levels[0], state.levels[kLevels - 1]);
    for_elements_of_pieces(input.count, block, thread, [&](uint32_t i) {
      const uint32_t key = magnitude_key(selectable(input, i));
      if (key < lowest) return;
      for (uint32_t level = 0; level < kLevels; ++level)
        if (key >= state.levels[level]) add_to(shared.reached[level], 1);
    });
  }
};

// One thread: the threshold at which there are 0.8 k, or exactly k where the guess was wrong or
// more than k are left.
struct LowerWork {
  using Shared = NoShared;
  CudaEncode input;

  GRADBUS_BOTH static uint32_t blocks() { return 1; }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t, uint32_t thread, NoShared&) const {
    if (thread != 0) return;
    SelectState& state = *select_memory(input).state;
    const uint32_t k = input.choice.entries;
    const uint32_t enough = (k * 4 + 4) / 5;
    const uint32_t lowest = state.levels[0];
    uint32_t level = 1;
    while (level + 1 < kLevels && state.levels[level] > lowest && state.reached[level] < enough)
      ++level;
    if (state.levels[level] <= lowest) level = 0;
    state.first = state.levels[level];
    const bool guessed = state.reached[0] <= input.choice.candidates && state.reached[0] >= enough;
    state.exact = guessed && state.reached[level] <= k ? 0 : 1;
  }
};

}  // namespace gradbus
