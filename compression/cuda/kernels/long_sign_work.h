// For sign blocks that are longer than a grid block. Pass 1: one grid block per piece writes the
// signs and the sums of its batches. Pass 2: one grid block per codec block adds these sums in the
// codec's order. Pass 3: one grid block per piece writes the residual.
//
// Workspace: SignStep[blocks of the codec], then of each piece u32 negatives, and the sums: 1 KiB
// for 8 KiB of gradient.
#pragma once

#include "compression/cuda/kernels/sign_work.h"

namespace gradbus {

GRADBUS_BOTH inline uint32_t pieces_of_signs(const CudaEncode& input) {
  return piece_blocks(smaller(input.codec.bucket, input.count));
}
GRADBUS_BOTH inline uint32_t long_sign_blocks(const CudaEncode& input) {
  return sign_blocks(input) * pieces_of_signs(input);
}
GRADBUS_BOTH inline SignPiece long_sign_piece(const CudaEncode& input, uint32_t block) {
  const uint32_t of = block / pieces_of_signs(input);
  const uint32_t first = of * input.codec.bucket;
  const uint32_t end = smaller(input.codec.bucket, input.count - first);
  const uint32_t at = smaller(block % pieces_of_signs(input) * kPieceElements, end);
  return {of, first + at, smaller(kPieceElements, end - at)};
}

struct LongSignMemory {
  SignStep* steps;
  uint32_t* negatives;
  float* near;  // [pieces][kBlockThreads]
};
GRADBUS_BOTH inline LongSignMemory long_sign_memory(const CudaEncode& input) {
  LongSignMemory memory{};
  memory.steps = static_cast<SignStep*>(input.workspace);
  memory.negatives = reinterpret_cast<uint32_t*>(memory.steps + sign_blocks(input));
  memory.near = reinterpret_cast<float*>(memory.negatives + long_sign_blocks(input));
  return memory;
}
inline size_t long_sign_bytes(const CudaEncode& input) {
  if (!has_long_signs(input)) return 0;
  return sign_blocks(input) * sizeof(SignStep) +
         size_t{long_sign_blocks(input)} * (sizeof(uint32_t) + kBlockThreads * sizeof(float));
}

struct LongSignsWork {
  using Shared = SignValues;
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return long_sign_blocks(input); }
  GRADBUS_BOTH static uint32_t phases() { return 3; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    if (phase == 0 && block == 0 && thread == 0) store_sign_header(input);
    const SignPiece piece = long_sign_piece(input, block);
    if (piece.count == 0) return;
    if (phase == 0) return shared.load(input, piece, thread);
    if (phase == 1) return shared.gather(thread);
    shared.store(input, piece, thread);
    const LongSignMemory memory = long_sign_memory(input);
    memory.near[size_t{block} * kBlockThreads + thread] = (&shared.near[0][0][0])[thread];
    if (thread == 0) memory.negatives[block] = shared.negatives();
  }
};

// A block a block of the codec; the sums of eight pieces at a time are fetched by all threads.
struct LongLevelsWork {
  static constexpr uint32_t kPieces = 8;

  struct Shared {
    float near[kPieces * SignValues::kBatches][2 * kSumLanes];
    uint32_t negatives[kBlockThreads];
    double far[2][kSumLanes];
  };
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return sign_blocks(input); }
  GRADBUS_BOTH uint32_t batches() const { return parts_of(pieces_of_signs(input), kPieces); }
  GRADBUS_BOTH uint32_t phases() const { return batches() * 2 + 1; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    if (phase == batches() * 2) {
      if (thread == 0) finish(block, shared);
      return;
    }
    const uint32_t first = phase / 2 * kPieces;
    const uint32_t pieces = piece_blocks(elements(block));
    const uint32_t count = smaller(kPieces, pieces - smaller(first, pieces));
    if (phase % 2 == 0) return fetch(block, first, count, thread, shared);
    if (thread >= 2 * kSumLanes) return;
    double& far = shared.far[thread / kSumLanes][thread % kSumLanes];
    double sum = first == 0 ? 0 : far;
    for (uint32_t b = 0; b < count * SignValues::kBatches; ++b)
      sum += static_cast<double>(shared.near[b][thread]);
    far = sum;
  }

 private:
  GRADBUS_BOTH uint32_t elements(uint32_t block) const {
    return smaller(input.codec.bucket, input.count - block * input.codec.bucket);
  }

  GRADBUS_BOTH void fetch(uint32_t block, uint32_t first, uint32_t count, uint32_t thread,
                          Shared& shared) const {
    const LongSignMemory memory = long_sign_memory(input);
    const uint32_t from = block * pieces_of_signs(input) + first;
    const float* near = memory.near + size_t{from} * kBlockThreads;
    for (uint32_t p = 0; p < count; ++p)
      (&shared.near[0][0])[p * kBlockThreads + thread] = near[p * kBlockThreads + thread];
    const uint32_t own = thread < count ? memory.negatives[from + thread] : 0;
    shared.negatives[thread] = (first == 0 ? 0 : shared.negatives[thread]) + own;
  }

  GRADBUS_BOTH void finish(uint32_t block, Shared& shared) const {
    uint32_t negatives = 0;
    for (const uint32_t own : shared.negatives) negatives += own;
    long_sign_memory(input).steps[block] =
        sign_step(input, block, shared.far, negatives, elements(block));
  }
};

struct LongKeepWork {
  using Shared = NoShared;
  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return long_sign_blocks(input); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, NoShared&) const {
    const SignPiece piece = long_sign_piece(input, block);
    if (piece.count == 0) return;
    const SignStep step = long_sign_memory(input).steps[piece.block];
    if (step.finite == 0) return;
    for (uint32_t e = thread; e < piece.count; e += kBlockThreads)
      keep_sign(input, step, piece.first + e, signed_value(input, piece.first + e));
  }
};

}  // namespace gradbus
