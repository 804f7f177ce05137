// The k-th largest key, exactly: for each of three digits a histogram of the elements that share
// the digits before it, and the bin in which rank k lies. What codecs/largest.cc finds with a guess
// and, where that was wrong, this way too.
//
// Of the partition (topk, and dgc where it must be exact) or of dgc's sample, there for two ranks
// at a time.
#pragma once

#include "compression/cuda/kernels/selection.h"

namespace gradbus {

struct PartitionKeys {
  static constexpr uint32_t kRanks = 1;
  GRADBUS_BOTH static uint32_t count(const CudaEncode& input) { return input.count; }
  GRADBUS_BOTH static bool is_asked_for(const SelectState& state) { return state.exact != 0; }
  GRADBUS_BOTH static uint32_t key(const CudaEncode& input, const SelectMemory&, uint32_t i) {
    return magnitude_key(selectable(input, i));
  }
};

struct SampleKeys {
  static constexpr uint32_t kRanks = 2;
  GRADBUS_BOTH static uint32_t count(const CudaEncode& input) { return input.choice.samples; }
  GRADBUS_BOTH static bool is_asked_for(const SelectState&) { return true; }
  GRADBUS_BOTH static uint32_t key(const CudaEncode&, const SelectMemory& memory, uint32_t i) {
    return magnitude_key(memory.samples[i]);
  }
};

template <class Keys>
struct HistogramWork {
  struct Shared {
    uint32_t bins[Keys::kRanks][kBins];
  };
  CudaEncode input;
  uint32_t digit;

  GRADBUS_BOTH uint32_t blocks() const { return sum_blocks(Keys::count(input)); }
  GRADBUS_BOTH static uint32_t phases() { return 3; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    const SelectMemory memory = select_memory(input);
    if (!Keys::is_asked_for(*memory.state)) return;
    if (phase == 1) return gather(memory, block, thread, shared);
    for (uint32_t r = 0; r < Keys::kRanks; ++r)
      for (uint32_t bin = thread; bin < kBins; bin += kBlockThreads) {
        uint32_t& own = shared.bins[r][bin];
        if (phase == 0)
          own = 0;
        else if (own != 0)
          add_to(memory.bins[r * kBins + bin], own);
      }
  }

 private:
  GRADBUS_BOTH void gather(const SelectMemory& memory, uint32_t block, uint32_t thread,
                           Shared& shared) const {
    const uint32_t shift = digit_shift(digit);
    const uint32_t bits = digit_bits(digit);
    const SelectState& state = *memory.state;
    for_elements_of_pieces(Keys::count(input), block, thread, [&](uint32_t i) {
      const uint32_t key = Keys::key(input, memory, i);
      for (uint32_t r = 0; r < Keys::kRanks; ++r)
        if ((key ^ state.prefix[r]) >> shift >> bits == 0)
          add_to(shared.bins[r][key >> shift & ((1u << bits) - 1)], 1);
    });
  }
};

// One block: the bin of each rank, and the bins are 0 again.
template <class Keys>
struct DigitWork {
  static constexpr uint32_t kRun = kBins / kBlockThreads;
  struct Shared {
    uint32_t sums[Keys::kRanks][kBlockThreads];
  };
  CudaEncode input;
  uint32_t digit;

  GRADBUS_BOTH static uint32_t blocks() { return 1; }
  GRADBUS_BOTH static uint32_t phases() { return 3; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t, uint32_t thread, Shared& shared) const {
    const SelectMemory memory = select_memory(input);
    if (!Keys::is_asked_for(*memory.state)) return;
    if (phase == 1) {
      if (thread < Keys::kRanks) find(memory, thread, shared.sums[thread]);
      return;
    }
    for (uint32_t r = 0; r < Keys::kRanks; ++r) {
      uint32_t* bins = memory.bins + r * kBins + thread * kRun;
      uint32_t sum = 0;
      for (uint32_t b = 0; b < kRun; ++b) {
        sum += bins[b];
        if (phase == 2) bins[b] = 0;
      }
      shared.sums[r][thread] = sum;
    }
  }

 private:
  // From the top down, runs of bins first. No rank is larger than the number of elements.
  GRADBUS_BOTH void find(const SelectMemory& memory, uint32_t r, const uint32_t* sums) const {
    SelectState& state = *memory.state;
    const uint32_t* bins = memory.bins + r * kBins;
    uint32_t rank = state.rank[r];
    uint32_t run = kBlockThreads - 1;
    for (; run > 0 && sums[run] < rank; --run) rank -= sums[run];
    uint32_t bin = run * kRun + kRun - 1;
    for (; bin > run * kRun && bins[bin] < rank; --bin) rank -= bins[bin];
    state.prefix[r] |= bin << digit_shift(digit);
    state.rank[r] = rank;
  }
};

// One thread, after the last digit of the partition's k-th: those above it, and as many ties as its
// rank among them says.
struct ExactWork {
  using Shared = NoShared;
  CudaEncode input;

  GRADBUS_BOTH static uint32_t blocks() { return 1; }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t, uint32_t thread, NoShared&) const {
    SelectState& state = *select_memory(input).state;
    if (thread != 0 || state.exact == 0) return;
    state.first = state.prefix[0] + 1;
    state.tie = state.prefix[0];
    state.ties = state.rank[0];
  }
};

}  // namespace gradbus
