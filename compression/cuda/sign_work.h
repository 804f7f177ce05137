// Kernels of signsgd, signum, efsignsgd and onebit (codecs/sign_codec.h).
//
// A block of the grid takes one block of the codec, a piece at a time: up to kPieceElements, as by
// default, it reads once; a longer one, to keep what its signs lack, twice.
#pragma once

#include "compression/codecs/sign_codec.h"
#include "compression/cuda/elements.h"
#include "compression/cuda/grid.h"
#include "compression/kernels/lanes.h"

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

struct SignEncodeWork {
  static constexpr uint32_t kBatch = 256;  // elements whose lanes are added in f32
  static constexpr uint32_t kBatches = kPieceElements / kBatch;
  static constexpr uint32_t kMeasurePhases = 3;
  static_assert(kBlockThreads == kBatches * 2 * kSumLanes);  // a sum each
  static_assert(kBlockThreads * 8 == kPieceElements);        // eight signs each

  struct Shared {
    double far[2][kSumLanes];  // of those below 0, and of the others
    float near[kBatches][2][kSumLanes];
    uint32_t negatives;
    CudaLevels levels;
    bool finite;
    float values[kPieceElements];
    alignas(16) uint8_t signs[kBlockThreads];
  };

  CudaEncode input;

  struct Piece {
    uint32_t block_count;
    uint32_t first;
    uint32_t count;
    bool opens;
  };

  GRADBUS_BOTH uint32_t sign_block() const { return input.codec.bucket; }
  GRADBUS_BOTH uint32_t pieces() const { return piece_blocks(smaller(sign_block(), input.count)); }
  GRADBUS_BOTH uint32_t blocks() const { return larger(1u, parts_of(input.count, sign_block())); }
  GRADBUS_BOTH uint32_t phases() const {
    const bool keeps = input.residual != nullptr || input.momentum != nullptr;
    return pieces() * kMeasurePhases + 1 + (keeps ? pieces() : 0);
  }

  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    if (phase == 0 && block == 0 && thread == 0) store_header(input, body_bytes());
    const uint32_t measures = pieces() * kMeasurePhases;
    if (input.count == 0) return;
    if (phase == measures) return levels(block, thread, shared);
    if (phase > measures) return keep(piece_of(block, phase - measures - 1), thread, shared);
    const Piece piece = piece_of(block, phase / kMeasurePhases);
    if (piece.count == 0) return;
    if (phase % kMeasurePhases == 0) return load(piece, thread, shared);
    if (phase % kMeasurePhases == 1) return gather(thread, shared);
    fold(piece, thread, shared);
  }

 private:
  GRADBUS_BOTH uint32_t body_bytes() const {
    return sign_words_offset(input.codec, input.count) - uint32_t{kPayloadHeaderBytes} +
           parts_of(input.count, 64) * 8;
  }

  GRADBUS_BOTH Piece piece_of(uint32_t block, uint32_t index) const {
    Piece piece{};
    const uint32_t block_first = block * sign_block();
    piece.block_count = smaller(sign_block(), input.count - block_first);
    const uint32_t at = smaller(index * kPieceElements, piece.block_count);
    piece.first = block_first + at;
    piece.count = smaller(kPieceElements, piece.block_count - at);
    piece.opens = at == 0;
    return piece;
  }

  // Zeros behind the end: they have no bits and add nothing.
  GRADBUS_BOTH void load(const Piece& piece, uint32_t thread, Shared& shared) const {
    for (uint32_t e = thread; e < kPieceElements; e += kBlockThreads)
      shared.values[e] = e < piece.count ? signed_value(piece.first + e) : 0.0F;
  }

  // What the sign is of: v, or the momentum that v goes into.
  GRADBUS_BOTH float signed_value(uint32_t i) const {
    const float v = compensated(input, i);
    return input.momentum == nullptr ? v : v + input.codec.beta * input.momentum[i];
  }

  // Of a lane of four words, those below 0 or the others, as signs_scalar.cc adds them.
  GRADBUS_BOTH static float near_sum(const float* lane, bool below) {
    float sum = 0;
    for (uint32_t word = 0; word < kBatch / 64; ++word, lane += 64) {
      const auto part = [&](uint32_t i) { return (lane[i] < 0) == below ? lane[i] : 0.0F; };
      sum += (part(0) + part(16)) + (part(32) + part(48));
    }
    return sum;
  }

  GRADBUS_BOTH static void gather(uint32_t thread, Shared& shared) {
    const uint32_t batch = thread / (2 * kSumLanes);
    const uint32_t which = thread / kSumLanes % 2;
    const uint32_t lane = thread % kSumLanes;
    shared.near[batch][which][lane] = near_sum(&shared.values[batch * kBatch + lane], which == 0);
    uint32_t signs = 0;
    for (uint32_t j = 0; j < 8; ++j) signs |= (shared.values[thread * 8 + j] < 0 ? 1u : 0u) << j;
    shared.signs[thread] = static_cast<uint8_t>(signs);
  }

  GRADBUS_BOTH void fold(const Piece& piece, uint32_t thread, Shared& shared) const {
    const auto* words = reinterpret_cast<const uint32_t*>(shared.signs);
    auto* to =
        reinterpret_cast<uint32_t*>(input.payload + sign_words_offset(input.codec, input.count)) +
        piece.first / 32;
    if (thread < parts_of(piece.count, 64) * 2) to[thread] = words[thread];
    if (thread < 2 * kSumLanes) {
      double& far = shared.far[thread / kSumLanes][thread % kSumLanes];
      double sum = piece.opens ? 0 : far;
      for (uint32_t batch = 0; batch < kBatches; ++batch)
        sum += static_cast<double>(shared.near[batch][thread / kSumLanes][thread % kSumLanes]);
      far = sum;
    }
    if (thread == 2 * kSumLanes) {
      uint32_t negatives = piece.opens ? 0 : shared.negatives;
      for (uint32_t w = 0; w < kBlockThreads / 4; ++w) negatives += ones(words[w]);
      shared.negatives = negatives;
    }
  }

  GRADBUS_BOTH static uint32_t ones(uint32_t bits) {
#ifdef __CUDA_ARCH__
    return static_cast<uint32_t>(__popc(bits));
#else
    return static_cast<uint32_t>(std::popcount(bits));
#endif
  }

  GRADBUS_BOTH static float mean(double sum, uint32_t elements) {
    return elements == 0 ? 0 : static_cast<float>(sum / static_cast<double>(elements));
  }

  GRADBUS_BOTH CudaLevels levels_of(double below, double rest, uint32_t negatives,
                                    uint32_t count) const {
    const auto level = static_cast<SignCodec::Level>(input.codec.level);
    if (level == SignCodec::Level::kStep) return {-input.codec.step, input.codec.step};
    if (level == SignCodec::Level::kTwoMeans)
      return {mean(below, negatives), mean(rest, count - negatives)};
    const float both = mean(rest - below, count);
    return {-both, both};
  }

  GRADBUS_BOTH void levels(uint32_t block, uint32_t thread, Shared& shared) const {
    if (thread != 0) return;
    const double below = tree_sum(shared.far[0]);
    const double rest = tree_sum(shared.far[1]);
    const double zero = (below - below) + (rest - rest);  // NaN unless both are finite
    shared.finite = zero == 0;
    shared.levels = CudaLevels{float_of(kQuietNan), float_of(kQuietNan)};
    if (shared.finite)
      shared.levels = levels_of(below, rest, shared.negatives, piece_of(block, 0).block_count);
    auto* to = reinterpret_cast<float*>(input.payload + kPayloadHeaderBytes);
    if (sign_levels_of(input.codec) == 1) {
      to[block] = shared.levels.rest;
      return;
    }
    to[2 * block] = shared.levels.below;
    to[2 * block + 1] = shared.levels.rest;
  }

  GRADBUS_BOTH void keep(const Piece& piece, uint32_t thread, const Shared& shared) const {
    if (!shared.finite) return;
    const bool kept = pieces() == 1;  // v is still there
    for (uint32_t e = thread; e < piece.count; e += kBlockThreads) {
      const uint32_t i = piece.first + e;
      const float x = kept ? shared.values[e] : signed_value(i);
      const float v = input.momentum == nullptr ? x : compensated(input, i);
      if (input.momentum != nullptr) input.momentum[i] = x;
      if (input.residual != nullptr)
        input.residual[i] = v - (x < 0 ? shared.levels.below : shared.levels.rest);
    }
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
