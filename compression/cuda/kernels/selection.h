// What the kernels of selections (codecs/sparse_payload.h) share: v, what they write down for each
// other in the workspace, and the list that comes of it (cuda_codec.h).
#pragma once

#include "compression/codecs/compensated_partition.h"
#include "compression/cuda/kernels/elements.h"
#include "compression/cuda/kernels/grid.h"
#include "compression/kernels/quantize/wire_values.h"
#include "compression/kernels/select/select.h"

namespace gradbus {

inline constexpr uint32_t kNoElement = UINT32_MAX;

// Radix selection takes a key's 31 bits in three digits, from the top.
inline constexpr uint32_t kDigits = 3;
inline constexpr uint32_t kBins = 2048;
GRADBUS_BOTH constexpr uint32_t digit_shift(uint32_t digit) { return 20 - 10 * digit; }
GRADBUS_BOTH constexpr uint32_t digit_bits(uint32_t digit) { return digit == 0 ? 11 : 10; }

// dgc lowers its threshold ten times at most; the first level is what the sample's rank 2 k
// reaches.
inline constexpr uint32_t kLevels = 12;
// randk draws as many as are missing, this often, and then one by one. At density 0.5, which is the
// worst, each halves what is missing: 0.004 % of the partition are left.
inline constexpr uint32_t kDraws = 12;

struct SelectState {
  // What is selected: keys from `first` on, and the first `ties` elements whose key is `tie`.
  uint32_t first;
  uint32_t tie;
  uint32_t ties;
  uint32_t bad;           // index of the first v that is not finite
  uint32_t bad_gradient;  // ... of the gradient
  uint32_t entries;
  uint32_t exact;  // radix selection over the partition is called for
  // Of radix selection: the digits found, and the rank among those that share them. Two ranks at a
  // time in dgc's sample.
  uint32_t prefix[2];
  uint32_t rank[2];
  uint32_t levels[kLevels];   // dgc's thresholds
  uint32_t reached[kLevels];  // elements from each on
  uint32_t marked[kDraws];    // of randk's elements, by each draw
};
inline constexpr uint32_t kStateBytes = 256;
static_assert(sizeof(SelectState) <= kStateBytes);

struct SelectMemory {
  SelectState* state;
  uint32_t* bins;   // [2][kBins]
  uint32_t* above;  // of each piece: elements from `first` on; then, of the pieces before it
  uint32_t* equal;  // the same of ties
  float* samples;   // dgc
  uint32_t* marks;  // randk: a bit an element
};

GRADBUS_BOTH inline CudaRule rule_of(const CudaEncode& input) {
  return static_cast<CudaRule>(input.codec.rule);
}
GRADBUS_BOTH constexpr uint32_t mark_words(uint32_t count) { return parts_of(count, 32); }

GRADBUS_BOTH inline SelectMemory select_memory(const CudaEncode& input) {
  SelectMemory memory{};
  auto* at = static_cast<uint8_t*>(input.workspace);
  memory.state = reinterpret_cast<SelectState*>(at);
  memory.bins = reinterpret_cast<uint32_t*>(at + kStateBytes);
  memory.above = memory.bins + size_t{2} * kBins;
  memory.equal = memory.above + piece_blocks(input.count);
  memory.marks = memory.equal + piece_blocks(input.count);
  memory.samples = reinterpret_cast<float*>(memory.marks);
  return memory;
}
inline size_t select_workspace_bytes(const CudaEncode& input) {
  const size_t words = size_t{2} * kBins + size_t{2} * piece_blocks(input.count);
  const CudaRule rule = rule_of(input);
  const size_t own = rule == CudaRule::kDrawn     ? mark_words(input.count)
                     : rule == CudaRule::kSampled ? input.choice.samples
                                                  : 0;
  return kStateBytes + 4 * (words + own);
}

struct SelectList {
  uint32_t* header;
  float* values;
  uint32_t* indices;
};
GRADBUS_BOTH inline SelectList select_list(uint8_t* payload, uint32_t entries) {
  auto* header = reinterpret_cast<uint32_t*>(payload);
  auto* values = reinterpret_cast<float*>(payload + kPayloadHeaderBytes);
  return {header, values, reinterpret_cast<uint32_t*>(values + entries)};
}

// v as these codecs see it: where there is only a residual and it does not decay, v is there
// already, zeros below zero included; unless the codec clears what it sends as it goes.
GRADBUS_BOTH inline float selectable(const CudaEncode& input, uint32_t i) {
  const CudaRule rule = rule_of(input);
  const bool clears = (rule == CudaRule::kLargest || rule == CudaRule::kThreshold) &&
                      static_cast<WireType>(input.codec.wire) == WireType::kF32;
  return clears ? compensated(input, i) : plain_element(input, i);
}

// What arrives of a value that is sent.
GRADBUS_BOTH inline float arriving(const CudaEncode& input, float value) {
  const auto wire = static_cast<WireType>(input.codec.wire);
  if (wire == WireType::kFp16) return CudaF16::widen(CudaF16::narrow(value));
  if (wire == WireType::kBf16) return CudaBf16::widen(CudaBf16::narrow(value));
  return value;
}

// Whose index a payload that is not finite names. Codecs look at gradients of up to 1 Mi elements
// before they add what was kept.
GRADBUS_BOTH inline uint32_t first_bad(const CudaEncode& input, const SelectState& state) {
  const bool looks_first =
      input.residual != nullptr && has_gradient(input) && input.count <= kLookFirstElements;
  return looks_first && state.bad_gradient != kNoElement ? state.bad_gradient : state.bad;
}

}  // namespace gradbus
