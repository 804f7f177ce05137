// Kernels of randk's draw (IndexDraw in codecs/randk.h), which draws until enough elements are
// marked. Each round draws as many indices in parallel as marks are missing. Duplicates leave marks
// missing, so rounds repeat until none is.
#pragma once

#include "compression/cuda/kernels/selection.h"
#include "compression/random.h"

namespace gradbus {

// What is drawn: the selected, or of more than half those left out.
GRADBUS_BOTH inline uint32_t marks_wanted(const CudaEncode& input) {
  const uint32_t k = input.choice.entries;
  return k > input.count / 2 ? input.count - k : k;
}

// Before the draw of this number: what is missing, and the counter that comes next.
struct DrawsLeft {
  uint32_t missing;
  uint64_t counter;
};
GRADBUS_BOTH inline DrawsLeft draws_left(const CudaEncode& input, const SelectState& state,
                                         uint32_t draw) {
  DrawsLeft left{marks_wanted(input), mix_u64(input.seed)};
  for (uint32_t d = 0; d < draw; ++d) {
    left.counter += left.missing;
    left.missing -= smaller(state.marked[d], left.missing);
  }
  return left;
}

// Marks the element that a counter draws; false where it was marked.
GRADBUS_BOTH inline bool mark_drawn(const CudaEncode& input, uint32_t* marks, uint64_t counter) {
  const auto i = static_cast<uint32_t>(drawn_below(mix_u64(counter), input.count));
  return (set_bits(marks[i / 32], 1u << (i % 32)) >> (i % 32) & 1) == 0;
}

// Which draw marks an element that two of them meet depends on their order; how many are marked
// does not.
struct DrawWork {
  struct Shared {
    uint32_t marked;
  };
  CudaEncode input;
  uint32_t draw;

  GRADBUS_BOTH uint32_t blocks() const { return sum_blocks(marks_wanted(input)); }
  GRADBUS_BOTH static uint32_t phases() { return 3; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    const SelectMemory memory = select_memory(input);
    if (phase == 1) return mark(memory, block, thread, shared);
    if (thread != 0) return;
    if (phase == 0)
      shared.marked = 0;
    else if (shared.marked != 0)
      add_to(memory.state->marked[draw], shared.marked);
  }

 private:
  GRADBUS_BOTH void mark(const SelectMemory& memory, uint32_t block, uint32_t thread,
                         Shared& shared) const {
    const DrawsLeft left = draws_left(input, *memory.state, draw);
    uint32_t marked = 0;
    for_elements_of_pieces(left.missing, block, thread, [&](uint32_t i) {
      marked += mark_drawn(input, memory.marks, left.counter + i) ? 1 : 0;
    });
    if (marked != 0) add_to(shared.marked, marked);
  }
};

// One thread: the few that are missing after the last draw.
struct DrawRestWork {
  using Shared = NoShared;
  CudaEncode input;

  GRADBUS_BOTH static uint32_t blocks() { return 1; }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t, uint32_t thread, NoShared&) const {
    if (thread != 0 || input.count == 0) return;
    const SelectMemory memory = select_memory(input);
    DrawsLeft left = draws_left(input, *memory.state, kDraws);
    while (left.missing != 0)
      left.missing -= mark_drawn(input, memory.marks, left.counter++) ? 1 : 0;
  }
};

}  // namespace gradbus
