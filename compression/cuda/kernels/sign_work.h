// Kernels of signsgd, signum, efsignsgd and onebit (codecs/sign_codec.h).
//
// A block of the grid takes one block of the codec, up to kPieceElements, as by default, and reads
// it once. A longer one is a block of the grid for each piece (long_sign_work.h).
#pragma once

#include "compression/codecs/sign_codec.h"
#include "compression/cuda/kernels/elements.h"
#include "compression/cuda/kernels/grid.h"
#include "compression/kernels/vector/lanes.h"

namespace gradbus {

struct CudaLevels {
  float below;
  float rest;
};

GRADBUS_BOTH inline uint32_t sign_levels_of(const CudaCodec& codec) {
  return static_cast<SignCodec::Level>(codec.level) == SignCodec::Level::kTwoMeans ? 2 : 1;
}
GRADBUS_BOTH inline uint32_t sign_words_offset(const CudaCodec& codec, uint32_t count) {
  return kPayloadHeaderBytes + parts_of(count, codec.bucket) * sign_levels_of(codec) * 4;
}

GRADBUS_BOTH inline bool has_long_signs(const CudaEncode& input) {
  return smaller(input.codec.bucket, input.count) > kPieceElements;
}
GRADBUS_BOTH inline uint32_t sign_blocks(const CudaEncode& input) {
  return parts_of(input.count, input.codec.bucket);
}

GRADBUS_BOTH inline uint32_t ones(uint32_t bits) {
#ifdef __CUDA_ARCH__
  return static_cast<uint32_t>(__popc(bits));
#else
  return static_cast<uint32_t>(std::popcount(bits));
#endif
}

// What the sign is of: v, or the momentum that v goes into.
GRADBUS_BOTH inline float signed_value(const CudaEncode& input, uint32_t i) {
  const float v = compensated(input, i);
  return input.momentum == nullptr ? v : v + input.codec.beta * input.momentum[i];
}

struct SignPiece {
  uint32_t block;  // of the codec
  uint32_t first;
  uint32_t count;
};

// A piece: its signs, and the sums of its batches, which the codec adds in f32.
struct SignValues {
  static constexpr uint32_t kBatch = 256;
  static constexpr uint32_t kBatches = kPieceElements / kBatch;
  static_assert(kBlockThreads == kBatches * 2 * kSumLanes);  // a sum each
  static_assert(kBlockThreads * 8 == kPieceElements);        // eight signs each

  float near[kBatches][2][kSumLanes];  // of those below 0, and of the others
  float values[kPieceElements];
  alignas(16) uint8_t signs[kBlockThreads];

  // Zeros behind the end: they have no bits and add nothing.
  GRADBUS_BOTH void load(const CudaEncode& input, const SignPiece& piece, uint32_t thread) {
    for (uint32_t e = thread; e < kPieceElements; e += kBlockThreads)
      values[e] = e < piece.count ? signed_value(input, piece.first + e) : 0.0F;
  }

  GRADBUS_BOTH void gather(uint32_t thread) {
    const uint32_t batch = thread / (2 * kSumLanes);
    const uint32_t which = thread / kSumLanes % 2;
    const uint32_t lane = thread % kSumLanes;
    near[batch][which][lane] = near_sum(&values[batch * kBatch + lane], which == 0);
    uint32_t bits = 0;
    for (uint32_t j = 0; j < 8; ++j) bits |= (values[thread * 8 + j] < 0 ? 1u : 0u) << j;
    signs[thread] = static_cast<uint8_t>(bits);
  }

  GRADBUS_BOTH void store(const CudaEncode& input, const SignPiece& piece, uint32_t thread) const {
    const auto* words = reinterpret_cast<const uint32_t*>(signs);
    auto* to =
        reinterpret_cast<uint32_t*>(input.payload + sign_words_offset(input.codec, input.count)) +
        piece.first / 32;
    if (thread < parts_of(piece.count, 64) * 2) to[thread] = words[thread];
  }

  GRADBUS_BOTH uint32_t negatives() const {
    const auto* words = reinterpret_cast<const uint32_t*>(signs);
    uint32_t sum = 0;
    for (uint32_t w = 0; w < kBlockThreads / 4; ++w) sum += ones(words[w]);
    return sum;
  }

 private:
  // Of a lane of four words, those below 0 or the others, as signs_scalar.cc adds them.
  GRADBUS_BOTH static float near_sum(const float* lane, bool below) {
    float sum = 0;
    for (uint32_t word = 0; word < kBatch / 64; ++word, lane += 64) {
      const auto part = [&](uint32_t i) { return (lane[i] < 0) == below ? lane[i] : 0.0F; };
      sum += (part(0) + part(16)) + (part(32) + part(48));
    }
    return sum;
  }
};

// The levels of a block of the codec.
struct SignStep {
  CudaLevels levels;
  uint32_t finite;
};

GRADBUS_BOTH inline CudaLevels sign_levels(const CudaCodec& codec, double below, double rest,
                                           uint32_t negatives, uint32_t count) {
  const auto mean = [](double sum, uint32_t elements) {
    return elements == 0 ? 0.0F : static_cast<float>(sum / static_cast<double>(elements));
  };
  const auto level = static_cast<SignCodec::Level>(codec.level);
  if (level == SignCodec::Level::kStep) return {-codec.step, codec.step};
  if (level == SignCodec::Level::kTwoMeans)
    return {mean(below, negatives), mean(rest, count - negatives)};
  const float both = mean(rest - below, count);
  return {-both, both};
}

// Of the lanes' sums, below 0 and others; to the payload too.
GRADBUS_BOTH inline SignStep sign_step(const CudaEncode& input, uint32_t block,
                                       double (&far)[2][kSumLanes], uint32_t negatives,
                                       uint32_t count) {
  const double below = tree_sum(far[0]);
  const double rest = tree_sum(far[1]);
  const double zero = (below - below) + (rest - rest);  // NaN unless both are finite
  SignStep step{{float_of(kQuietNan), float_of(kQuietNan)}, zero == 0 ? 1u : 0u};
  if (step.finite != 0) step.levels = sign_levels(input.codec, below, rest, negatives, count);
  auto* to = reinterpret_cast<float*>(input.payload + kPayloadHeaderBytes);
  if (sign_levels_of(input.codec) == 1) {
    to[block] = step.levels.rest;
  } else {
    to[2 * block] = step.levels.below;
    to[2 * block + 1] = step.levels.rest;
  }
  return step;
}

// What stays of element i, whose signed value is x.
GRADBUS_BOTH inline void keep_sign(const CudaEncode& input, const SignStep& step, uint32_t i,
                                   float x) {
  const float v = input.momentum == nullptr ? x : compensated(input, i);
  if (input.momentum != nullptr) input.momentum[i] = x;
  if (input.residual != nullptr)
    input.residual[i] = v - (x < 0 ? step.levels.below : step.levels.rest);
}

GRADBUS_BOTH inline void store_sign_header(const CudaEncode& input) {
  const uint32_t levels = sign_words_offset(input.codec, input.count);
  store_header(input, levels - uint32_t{kPayloadHeaderBytes} + parts_of(input.count, 64) * 8);
}

struct SignEncodeWork {
  struct Shared {
    SignValues piece;
    double far[2][kSumLanes];
    uint32_t negatives;
    SignStep step;
  };

  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return larger(1u, sign_blocks(input)); }
  GRADBUS_BOTH static uint32_t phases() { return 5; }
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    if (phase == 0 && block == 0 && thread == 0) store_sign_header(input);
    if (input.count == 0) return;
    const uint32_t first = block * input.codec.bucket;
    const SignPiece piece{block, first, smaller(input.codec.bucket, input.count - first)};
    if (phase == 0) return shared.piece.load(input, piece, thread);
    if (phase == 1) return shared.piece.gather(thread);
    if (phase == 2) return fold(piece, thread, shared);
    if (phase == 3) {
      if (thread == 0)
        shared.step = sign_step(input, block, shared.far, shared.negatives, piece.count);
      return;
    }
    if (shared.step.finite == 0) return;
    for (uint32_t e = thread; e < piece.count; e += kBlockThreads)
      keep_sign(input, shared.step, piece.first + e, shared.piece.values[e]);
  }

 private:
  GRADBUS_BOTH void fold(const SignPiece& piece, uint32_t thread, Shared& shared) const {
    shared.piece.store(input, piece, thread);
    if (thread < 2 * kSumLanes) {
      double sum = 0;
      for (const auto& batch : shared.piece.near)
        sum += static_cast<double>(batch[thread / kSumLanes][thread % kSumLanes]);
      shared.far[thread / kSumLanes][thread % kSumLanes] = sum;
    }
    if (thread == 2 * kSumLanes) shared.negatives = shared.piece.negatives();
  }
};

struct SignApplyWork {
  using Shared = NoShared;
  CudaApply input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, Shared&) const {
    const auto* levels = reinterpret_cast<const float*>(input.payload + kPayloadHeaderBytes);
    const uint8_t* signs = input.payload + sign_words_offset(input.codec, input.count);
    const bool two = sign_levels_of(input.codec) == 2;
    for_elements(input.count, block, thread, [&](uint32_t i) {
      const uint32_t b = i / input.codec.bucket;
      const bool below = (signs[i / 8] >> (i % 8) & 1) != 0;
      const float level = two ? levels[2 * b + (below ? 0 : 1)] : below ? -levels[b] : levels[b];
      const float value = input.scale * level;
      input.to[i] = input.add != 0 ? input.to[i] + value : value;
    });
  }
};

}  // namespace gradbus
