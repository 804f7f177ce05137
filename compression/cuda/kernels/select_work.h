// Kernels that turn a choice of elements into a list: pieces are counted, the counts are summed up,
// and each piece writes its elements where the ones before it end. So lists are in order whatever
// order blocks run in.
//
//   SelectInitWork                    the state, empty
//   ... radix_work.h, dgc_work.h, randk_work.h: what is selected
//   SelectCountWork                   how many of each piece; what is not finite
//   SelectScanWork                    where each piece's begin
//   SelectWriteWork                   values, indices, the residual
#pragma once

#include "compression/cuda/kernels/selection.h"
#include "compression/random.h"

namespace gradbus {

// Whether an element is selected: surely, or if it is one of the first ties.
struct CudaPick {
  bool above;
  bool equal;
};
GRADBUS_BOTH inline CudaPick pick_of(const CudaEncode& input, const SelectMemory& memory,
                                     uint32_t i, float v) {
  if (rule_of(input) == CudaRule::kDrawn) {
    const bool marked = (memory.marks[i / 32] >> (i % 32) & 1) != 0;
    return {marked == (input.choice.entries <= input.count / 2), false};
  }
  const uint32_t key = magnitude_key(v);
  return {key >= memory.state->first, memory.state->ties != 0 && key == memory.state->tie};
}

struct SelectInitWork {
  using Shared = NoShared;
  CudaEncode input;

  GRADBUS_BOTH uint32_t marks() const {
    return rule_of(input) == CudaRule::kDrawn ? mark_words(input.count) : 0;
  }
  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(marks()); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    const SelectMemory memory = select_memory(input);
    for_elements(marks(), block, thread, [&](uint32_t i) { memory.marks[i] = 0; });
    if (block != 0) return;
    for (uint32_t i = thread; i < 2 * kBins; i += kBlockThreads) memory.bins[i] = 0;
    if (thread == 0) *memory.state = begin();
  }

 private:
  GRADBUS_BOTH SelectState begin() const {
    SelectState state{};
    state.first = input.codec.key;
    state.bad = state.bad_gradient = kNoElement;
    state.exact = rule_of(input) == CudaRule::kLargest ? 1 : 0;
    const bool samples = rule_of(input) == CudaRule::kSampled;
    state.rank[0] = samples ? input.choice.top : input.choice.entries;
    state.rank[1] = smaller(2 * input.choice.top, input.choice.samples);
    return state;
  }
};

// Of a piece, by threads and then by sixteens of them: elements that are surely selected in the
// lower half of a word, those that may be in the upper one.
struct PieceCounts {
  static constexpr uint32_t kEqual = 1u << 16;
  static_assert(kPieceElements < kEqual && kBlockThreads == 16 * 16);

  uint32_t of_thread[kBlockThreads];
  uint32_t of_group[16];

  GRADBUS_BOTH void sum_group(uint32_t thread) {
    if (thread >= 16) return;
    uint32_t sum = 0;
    for (uint32_t t = thread * 16; t < thread * 16 + 16; ++t) sum += of_thread[t];
    of_group[thread] = sum;
  }
  GRADBUS_BOTH uint32_t before(uint32_t thread) const {
    uint32_t sum = 0;
    for (uint32_t g = 0; g < thread / 16; ++g) sum += of_group[g];
    for (uint32_t t = thread / 16 * 16; t < thread; ++t) sum += of_thread[t];
    return sum;
  }
};

struct SelectCountWork {
  struct Shared {
    PieceCounts counts;
  };
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 3; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    if (phase == 0) return count(block, thread, shared);
    if (phase == 1) return shared.counts.sum_group(thread);
    if (thread == 0) store(block, shared);
  }

 private:
  GRADBUS_BOTH void count(uint32_t block, uint32_t thread, Shared& shared) const {
    const SelectMemory memory = select_memory(input);
    uint32_t counts = 0;
    uint32_t bad = kNoElement;
    uint32_t bad_gradient = kNoElement;
    for_elements(input.count, block, thread, [&](uint32_t i) {
      const float v = selectable(input, i);
      const CudaPick pick = pick_of(input, memory, i, v);
      counts += (pick.above ? 1 : 0) + (pick.equal ? PieceCounts::kEqual : 0);
      if (is_finite(v)) return;
      bad = smaller(bad, i);
      if (has_gradient(input) && !is_finite(input.gradient[i]))
        bad_gradient = smaller(bad_gradient, i);
    });
    shared.counts.of_thread[thread] = counts;
    if (bad != kNoElement) lower_to(memory.state->bad, bad);
    if (bad_gradient != kNoElement) lower_to(memory.state->bad_gradient, bad_gradient);
  }

  GRADBUS_BOTH void store(uint32_t block, const Shared& shared) const {
    const SelectMemory memory = select_memory(input);
    uint32_t sum = 0;
    for (const uint32_t group : shared.counts.of_group) sum += group;
    memory.above[block] = sum % PieceCounts::kEqual;
    memory.equal[block] = sum / PieceCounts::kEqual;
  }
};

// One block: from counts of pieces to sums of those before each, and the list's header.
struct SelectScanWork {
  struct Shared {
    uint32_t above[kBlockThreads];
    uint32_t equal[kBlockThreads];
  };
  CudaEncode input;

  GRADBUS_BOTH static uint32_t blocks() { return 1; }
  GRADBUS_BOTH static uint32_t phases() { return 3; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t, uint32_t thread, Shared& shared) const {
    const SelectMemory memory = select_memory(input);
    const uint32_t pieces = piece_blocks(input.count);
    const uint32_t run = parts_of(pieces, kBlockThreads);
    const uint32_t first = smaller(thread * run, pieces);
    const uint32_t end = smaller(first + run, pieces);
    if (phase == 0) {
      shared.above[thread] = sum(memory.above, first, end);
      shared.equal[thread] = sum(memory.equal, first, end);
    } else if (phase == 1) {
      if (thread == 0) finish(memory, put_before(shared.above), put_before(shared.equal));
    } else {
      spread(memory.above, first, end, shared.above[thread]);
      spread(memory.equal, first, end, shared.equal[thread]);
    }
  }

 private:
  GRADBUS_BOTH static uint32_t sum(const uint32_t* counts, uint32_t first, uint32_t end) {
    uint32_t sum = 0;
    for (uint32_t i = first; i < end; ++i) sum += counts[i];
    return sum;
  }
  // Counts of threads to sums of those before each, 256 steps; returns the sum of all.
  GRADBUS_BOTH static uint32_t put_before(uint32_t* counts) {
    uint32_t sum = 0;
    for (uint32_t t = 0; t < kBlockThreads; ++t) {
      const uint32_t own = counts[t];
      counts[t] = sum;
      sum += own;
    }
    return sum;
  }
  GRADBUS_BOTH static void spread(uint32_t* counts, uint32_t first, uint32_t end, uint32_t before) {
    for (uint32_t i = first; i < end; ++i) {
      const uint32_t own = counts[i];
      counts[i] = before;
      before += own;
    }
  }

  GRADBUS_BOTH void finish(const SelectMemory& memory, uint32_t above, uint32_t equal) const {
    SelectState& state = *memory.state;
    const uint32_t bad = first_bad(input, state);
    const bool lists = bad == kNoElement || input.choice.in_flight != 0;
    state.entries = lists ? smaller(above + smaller(equal, state.ties), input.choice.entries) : 0;
    uint32_t* header = select_list(input.payload, input.choice.entries).header;
    header[0] = state.entries;
    header[1] = bad;
    header[2] = bad == kNoElement ? 0 : bits_of(compensated(input, bad));
    header[3] = 0;
  }
};

struct SelectWriteWork {
  static constexpr uint32_t kRun = kPieceElements / kBlockThreads;  // elements of a thread
  static_assert(kRun == 8);

  struct Shared {
    float values[kPieceElements];
    PieceCounts counts;
    uint8_t sent[kBlockThreads];  // a bit an element
  };
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 5; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    const SelectMemory memory = select_memory(input);
    const bool finite = first_bad(input, *memory.state) == kNoElement;
    if (!finite && input.choice.in_flight == 0) return;
    const uint32_t first = block * kPieceElements;
    const uint32_t count = smaller(kPieceElements, input.count - first);
    if (phase == 0) return load(first, count, thread, shared);
    if (phase == 1) return count_own(memory, first, count, thread, shared);
    if (phase == 2) return shared.counts.sum_group(thread);
    if (phase == 3) return write(memory, block, finite, thread, shared);
    if (finite && input.residual != nullptr) keep(first, count, thread, shared);
  }

 private:
  GRADBUS_BOTH void load(uint32_t first, uint32_t count, uint32_t thread, Shared& shared) const {
    for (uint32_t e = thread; e < count; e += kBlockThreads)
      shared.values[e] = selectable(input, first + e);
  }

  GRADBUS_BOTH void count_own(const SelectMemory& memory, uint32_t first, uint32_t count,
                              uint32_t thread, Shared& shared) const {
    uint32_t counts = 0;
    for (uint32_t e = thread * kRun; e < smaller(count, thread * kRun + kRun); ++e) {
      const CudaPick pick = pick_of(input, memory, first + e, shared.values[e]);
      counts += (pick.above ? 1 : 0) + (pick.equal ? PieceCounts::kEqual : 0);
    }
    shared.counts.of_thread[thread] = counts;
  }

  GRADBUS_BOTH void write(const SelectMemory& memory, uint32_t block, bool finite, uint32_t thread,
                          Shared& shared) const {
    const SelectList list = select_list(input.payload, input.choice.entries);
    const SelectState& state = *memory.state;
    const uint32_t first = block * kPieceElements;
    const uint32_t count = smaller(kPieceElements, input.count - first);
    const uint32_t before = shared.counts.before(thread);
    uint32_t above = memory.above[block] + before % PieceCounts::kEqual;
    uint32_t equal = memory.equal[block] + before / PieceCounts::kEqual;
    uint32_t sent = 0;
    for (uint32_t j = 0; j < kRun && thread * kRun + j < count; ++j) {
      const uint32_t e = thread * kRun + j;
      const CudaPick pick = pick_of(input, memory, first + e, shared.values[e]);
      const uint32_t to = above + smaller(equal, state.ties);
      if ((pick.above || (pick.equal && equal < state.ties)) && to < state.entries) {
        list.indices[to] = first + e;
        list.values[to] = finite ? input.choice.factor * shared.values[e] : not_finite(to);
        sent |= 1u << j;
      }
      above += pick.above ? 1 : 0;
      equal += pick.equal ? 1 : 0;
    }
    shared.sent[thread] = static_cast<uint8_t>(sent);
  }

  // In flight a vector is all zeros but for what says so.
  GRADBUS_BOTH float not_finite(uint32_t at) const {
    const uint32_t* header = select_list(input.payload, input.choice.entries).header;
    return at == 0 ? float_of(header[2]) : 0.0F;
  }

  GRADBUS_BOTH void keep(uint32_t first, uint32_t count, uint32_t thread,
                         const Shared& shared) const {
    for (uint32_t e = thread; e < count; e += kBlockThreads) {
      const float v = shared.values[e];
      const bool sent = (shared.sent[e / kRun] >> (e % kRun) & 1) != 0;
      const float got = sent ? arriving(input, input.choice.factor * v) : 0.0F;
      input.residual[first + e] = !sent ? v : is_finite(got) ? v - got : 0.0F;
    }
  }
};

// ---- from a list

struct SelectZeroWork {
  using Shared = NoShared;
  CudaApply input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    for_elements(input.count, block, thread, [&](uint32_t i) { input.to[i] = 0; });
  }
};

// A list is the host's, or this device's own; still no index of it reaches further than `count`.
struct SelectApplyWork {
  using Shared = NoShared;
  CudaApply input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.entries); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    const SelectList list = select_list(const_cast<uint8_t*>(input.payload), input.entries);
    const bool in_flight = input.add == 2;
    if (const uint32_t bad = list.header[1]; bad != kNoElement && !in_flight) {
      if (block == 0 && thread == 0 && bad < input.count) input.to[bad] += float_of(list.header[2]);
      return;
    }
    for_elements(smaller(list.header[0], input.entries), block, thread, [&](uint32_t e) {
      const uint32_t i = list.indices[e];
      if (i >= input.count) return;
      const float value = input.scale * list.values[e];
      input.to[i] = in_flight ? value : input.to[i] + value;
    });
  }
};

}  // namespace gradbus
