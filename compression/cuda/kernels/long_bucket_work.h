// The step of a bucket that is longer than a block takes: each piece is measured by a block of its
// own, then one block adds the pieces of a bucket up in their order, which is the codecs'.
// BucketEncodeWork reads them again and codes. So a partition is read twice, by the whole device.
//
// Workspace: CudaScale[buckets], then of each piece f64 squares, and u32 largest.
#pragma once

#include "compression/cuda/kernels/bucket_work.h"

namespace gradbus {

struct LongBucketMemory {
  CudaScale* scales;
  double* squares;
  uint32_t* largest;
};
GRADBUS_BOTH inline LongBucketMemory long_bucket_memory(const CudaEncode& input) {
  LongBucketMemory memory{};
  memory.scales = static_cast<CudaScale*>(input.workspace);
  memory.squares = reinterpret_cast<double*>(memory.scales + buckets_of(input));
  memory.largest = reinterpret_cast<uint32_t*>(memory.squares + bucket_blocks(input));
  return memory;
}
static_assert(sizeof(CudaScale) == sizeof(double), "squares behind the scales are aligned");
inline size_t long_bucket_bytes(const CudaEncode& input) {
  if (!has_long_buckets(input)) return 0;
  return buckets_of(input) * sizeof(CudaScale) + size_t{bucket_blocks(input)} * 12;
}

struct LongMeasureWork {
  using Shared = BucketValues;
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return bucket_blocks(input); }
  GRADBUS_BOTH static uint32_t phases() { return 3; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    const BucketPiece piece = bucket_piece(input, block);
    if (phase == 0) return shared.load(input, piece, thread);
    if (phase == 1) return shared.gather(input, piece, thread);
    if (thread != 0 || piece.count == 0) return;
    const LongBucketMemory memory = long_bucket_memory(input);
    memory.largest[block] = shared.largest_of(0, piece.count);
    memory.squares[block] = asks_for_squares(input.codec) ? tree_sum(shared.lanes[0]) : 0;
  }
};

// One grid block per bucket. All threads fetch the sums of kBatch pieces, and one thread adds them.
struct LongStepWork {
  static constexpr uint32_t kBatch = 1024;

  struct Shared {
    double squares[kBatch];
    uint32_t largest[kBlockThreads];
    double sum;
  };
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return buckets_of(input); }
  GRADBUS_BOTH uint32_t batches() const { return parts_of(pieces_of_bucket(input), kBatch); }
  GRADBUS_BOTH uint32_t phases() const { return batches() * 2 + 1; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    if (phase == batches() * 2) {
      if (thread == 0) finish(block, shared);
      return;
    }
    const uint32_t first = phase / 2 * kBatch;
    const uint32_t pieces = piece_blocks(elements(block));
    const uint32_t count = smaller(kBatch, pieces - smaller(first, pieces));
    if (phase % 2 == 0) return fetch(block, first, count, thread, shared);
    if (thread != 0) return;
    double sum = first == 0 ? 0 : shared.sum;
    for (uint32_t p = 0; p < count; ++p) sum += shared.squares[p];
    shared.sum = sum;
  }

 private:
  GRADBUS_BOTH uint32_t elements(uint32_t bucket) const {
    return smaller(input.codec.bucket, input.count - bucket * input.codec.bucket);
  }

  GRADBUS_BOTH void fetch(uint32_t block, uint32_t first, uint32_t count, uint32_t thread,
                          Shared& shared) const {
    const LongBucketMemory memory = long_bucket_memory(input);
    const uint32_t from = block * pieces_of_bucket(input) + first;
    uint32_t most = first == 0 ? 0 : shared.largest[thread];
    for (uint32_t p = thread; p < count; p += kBlockThreads) {
      shared.squares[p] = memory.squares[from + p];
      most = larger(most, memory.largest[from + p]);
    }
    shared.largest[thread] = most;
  }

  GRADBUS_BOTH void finish(uint32_t block, const Shared& shared) const {
    uint32_t most = 0;
    for (const uint32_t largest : shared.largest) most = larger(most, largest);
    const CudaScale scale = scale_of(input.codec, most, shared.sum, elements(block));
    long_bucket_memory(input).scales[block] = scale;
    bucket_steps(input)[block] = scale.step;
  }
};

}  // namespace gradbus
