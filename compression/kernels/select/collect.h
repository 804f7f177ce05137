// Lists the large elements of a block in the same pass that computes v. The codecs that select the
// largest elements run this loop over a whole partition. Any thread.
//
// A block is one of select.h, or DGC's: with a momentum, v is what accumulate_momentum() leaves in
// the residual. Listed elements need no second pass over the block. Between two passes over blocks
// of 2048 the memory was idle, which took 0.1 of top-k's time (AMD EPYC).
#pragma once

#include <cstddef>
#include <cstdint>

#include "compression/kernels/select/select.h"
#include "compression/kernels/vector/momentum.h"

namespace gradbus {

struct CollectBlock {
  SelectBlock of = {};
  float* momentum = nullptr;  // null: none; otherwise gradient and kept must be set
  MomentumStep step = {};     // its decay is that of the block
  uint32_t first = 0;         // index of the first element
  bool few = false;           // whether few elements are expected: less than 1 in 256
};

inline constexpr uint32_t kClearNone = kKeyMax + 1;

// Keys from `from` up are listed. Listed elements with keys from `clear_from` up leave 0 instead of
// v.
struct CollectKeys {
  uint32_t from = 0;
  uint32_t clear_from = kClearNone;
};

struct Collected {
  size_t taken = 0;  // elements
  size_t found = 0;
};

// Leaves v in `kept` and m in `momentum`. Writes index and value of the listed elements to
// `indices` and `values`; kCollectSlack entries behind each may be overwritten. `taken` is the
// count. If a v is not finite, `taken` is the number of elements before the word of 64 that
// contains it; that word and all later ones are unchanged.
inline constexpr size_t kCollectSlack = 16;
Collected collect_block(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                        float* values);
Collected collect_block_scalar(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                               float* values);

// v[i], before the block is collected.
float collected_element(const CollectBlock& block, size_t i);

// Keeps the listed elements with a key of at least `from`, in order. Returns their number.
size_t keep_listed(uint32_t from, size_t count, uint32_t* indices, float* values);
size_t keep_listed_scalar(uint32_t from, size_t count, uint32_t* indices, float* values);

}  // namespace gradbus
