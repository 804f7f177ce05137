// The elements of a block that are large enough, listed in the pass that makes v: what the codecs
// of the largest run over a whole unit. Any thread.
//
// A block is one of select.h, or DGC's: with a momentum v is what accumulate_momentum() leaves in
// the residual. What is listed needs no second look at the block: between two passes over blocks of
// 2048 memory had nothing to do, 0.1 of top-k's time (AMD EPYC).
#pragma once

#include <cstddef>
#include <cstdint>

#include "compression/kernels/momentum.h"
#include "compression/kernels/select.h"

namespace gradbus {

struct CollectBlock {
  SelectBlock of = {};
  float* momentum = nullptr;  // null: none; else gradient and kept are there
  MomentumStep step = {};     // its decay is the block's
  uint32_t first = 0;         // index of the first element
  bool few = false;           // are expected: under 1 in 256, say
};

inline constexpr uint32_t kClearNone = kKeyMax + 1;

// Keys of `from` and more are listed, and of them those of `clear_from` and more leave 0, not v.
struct CollectKeys {
  uint32_t from = 0;
  uint32_t clear_from = kClearNone;
};

struct Collected {
  size_t taken = 0;  // elements
  size_t found = 0;
};

// Leaves v in `kept`, m in `momentum`, and writes index and value of what is found to `indices` and
// `values`, behind which kCollectSlack of each may be overwritten. `taken` is the count; or, where
// a v is not finite, how many lie in front of the word of 64 that it is in: what follows has been
// left as it was.
inline constexpr size_t kCollectSlack = 16;
Collected collect_block(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                        float* values);
Collected collect_block_scalar(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                               float* values);

// v[i], before the block is collected.
float collected_element(const CollectBlock& block, size_t i);

// Keeps what has a key of `from` or more, in order, and returns how many that is.
size_t keep_listed(uint32_t from, size_t count, uint32_t* indices, float* values);
size_t keep_listed_scalar(uint32_t from, size_t count, uint32_t* indices, float* values);

}  // namespace gradbus
