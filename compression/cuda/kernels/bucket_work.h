// Kernels of fp8, int8, int4, qsgd, terngrad and natural (codecs/bucket_quantizer.h).
//
// A block takes whole buckets, up to kPieceElements, and reads them once. A longer bucket is one
// block a piece: long_bucket_work.h finds its step first, and BucketEncodeWork then codes.
#pragma once

#include "compression/cuda/kernels/elements.h"
#include "compression/cuda/kernels/grid.h"
#include "compression/kernels/vector/lanes.h"
#include "compression/kernels/vector/statistics.h"

namespace gradbus {

GRADBUS_BOTH inline uint32_t buckets_of(const CudaEncode& input) {
  return parts_of(input.count, input.codec.bucket);
}
GRADBUS_BOTH inline bool has_long_buckets(const CudaEncode& input) {
  return smaller(input.codec.bucket, input.count) > kPieceElements;
}
GRADBUS_BOTH inline uint32_t pieces_of_bucket(const CudaEncode& input) {
  return piece_blocks(smaller(input.codec.bucket, input.count));
}

// Of a block: pieces begin with a bucket, or long buckets with a piece. Behind the last bucket's
// end count is 0.
struct BucketPiece {
  uint32_t bucket;  // the first one
  uint32_t first;
  uint32_t count;
};
GRADBUS_BOTH inline uint32_t bucket_blocks(const CudaEncode& input) {
  if (has_long_buckets(input)) return buckets_of(input) * pieces_of_bucket(input);
  const uint32_t in_block = kPieceElements / smaller(input.codec.bucket, kPieceElements);
  return larger(1u, parts_of(buckets_of(input), in_block));
}
GRADBUS_BOTH inline BucketPiece bucket_piece(const CudaEncode& input, uint32_t block) {
  const uint32_t bucket = input.codec.bucket;
  if (!has_long_buckets(input)) {
    const uint32_t in_block = kPieceElements / smaller(bucket, kPieceElements);
    const uint32_t first = block * in_block * bucket;
    return {block * in_block, first,
            smaller(smaller(in_block * bucket, kPieceElements), input.count - first)};
  }
  const uint32_t of = block / pieces_of_bucket(input);
  const uint32_t end = smaller(bucket, input.count - of * bucket);
  const uint32_t at = smaller(block % pieces_of_bucket(input) * kPieceElements, end);
  return {of, of * bucket + at, smaller(kPieceElements, end - at)};
}

static_assert(kSquareLanes == 2 * kSumLanes);

// v of a piece, and what its buckets' steps come from.
struct BucketValues {
  static constexpr uint32_t kGranules = kPieceElements / kBucketGranule;

  double lanes[kGranules][kSumLanes];  // of each bucket of the piece
  uint32_t largest[kGranules];         // of each granule
  float values[kPieceElements];

  // Zeros behind the end: they are no largest and add nothing.
  GRADBUS_BOTH void load(const CudaEncode& input, const BucketPiece& piece, uint32_t thread) {
    for (uint32_t e = thread; e < kPieceElements; e += kBlockThreads)
      values[e] = e < piece.count ? compensated(input, piece.first + e) : 0.0F;
  }

  // The largest of each granule, and for each bucket its squares' lanes j and j + 16, added up.
  GRADBUS_BOTH void gather(const CudaEncode& input, const BucketPiece& piece, uint32_t thread) {
    if (thread < kGranules) {
      uint32_t most = 0;
      for (uint32_t j = 0; j < kBucketGranule; ++j) {  // turned, so that each reads another bank
        const uint32_t e = thread * kBucketGranule + (j + thread) % kBucketGranule;
        most = larger(most, bits_of(values[e]) & 0x7fffffff);
      }
      largest[thread] = most;
    }
    if (!asks_for_squares(input.codec)) return;
    const uint32_t run = smaller(input.codec.bucket, kPieceElements);
    for (uint32_t b = thread / kSumLanes; b * run < piece.count; b += kBlockThreads / kSumLanes) {
      const uint32_t end = smaller((b + 1) * run, piece.count);
      const auto square = [&](uint32_t e) {
        return e < end ? static_cast<double>(values[e]) * values[e] : 0.0;
      };
      double lower = 0;
      double upper = 0;
      for (uint32_t e = b * run + thread % kSumLanes; e < end; e += kSquareLanes) {
        lower += square(e);
        upper += square(e + kSumLanes);
      }
      lanes[b][thread % kSumLanes] = lower + upper;
    }
  }

  // Of elements [first, end) of the piece.
  GRADBUS_BOTH uint32_t largest_of(uint32_t first, uint32_t end) const {
    uint32_t most = 0;
    for (uint32_t g = first / kBucketGranule; g * kBucketGranule < end; ++g)
      most = larger(most, largest[g]);
    return most;
  }
};

GRADBUS_BOTH inline float* bucket_steps(const CudaEncode& input) {
  return reinterpret_cast<float*>(input.payload + kPayloadHeaderBytes);
}

template <CodeKind kKind>
struct BucketEncodeWork {
  struct Shared {
    BucketValues piece;
    CudaScale scales[BucketValues::kGranules];
    alignas(16) uint8_t codes[kPieceElements];
  };

  CudaEncode input;

  GRADBUS_BOTH uint32_t blocks() const { return bucket_blocks(input); }
  GRADBUS_BOTH static uint32_t phases() { return 5; }

  // Long buckets have their scales already, at the front of the workspace.
  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    if (phase == 0 && block == 0 && thread == 0) store_header(input, body_bytes());
    const BucketPiece piece = bucket_piece(input, block);
    const bool is_long = has_long_buckets(input);
    if (phase == 0) return shared.piece.load(input, piece, thread);
    if (phase == 1 && !is_long) return shared.piece.gather(input, piece, thread);
    if (phase == 2 && !is_long) return fold(piece, thread, shared);
    if (phase == 2 && thread == 0)
      shared.scales[0] = static_cast<const CudaScale*>(input.workspace)[piece.bucket];
    if (phase == 3) return code(piece, thread, shared);
    if (phase == 4) pack(piece, thread, shared);
  }

 private:
  GRADBUS_BOTH uint32_t body_bytes() const { return buckets_of(input) * 4 + packed(input.count); }
  GRADBUS_BOTH uint32_t packed(uint32_t count) const {
    return static_cast<uint32_t>((uint64_t{count} * input.codec.bits + 7) / 8);
  }

  // Thread b makes the step of bucket b.
  GRADBUS_BOTH void fold(const BucketPiece& piece, uint32_t thread, Shared& shared) const {
    const uint32_t bucket = smaller(input.codec.bucket, kPieceElements);
    const uint32_t at = thread * bucket;
    if (at >= piece.count || thread >= BucketValues::kGranules) return;
    const uint32_t end = smaller(at + bucket, piece.count);
    const double squares =
        asks_for_squares(input.codec) ? tree_sum(shared.piece.lanes[thread]) : 0.0;
    const CudaScale scale =
        scale_of(input.codec, shared.piece.largest_of(at, end), squares, end - at);
    shared.scales[thread] = scale;
    bucket_steps(input)[piece.bucket + thread] = scale.step;
  }

  GRADBUS_BOTH void code(const BucketPiece& piece, uint32_t thread, Shared& shared) const {
    const DitherStream stream = dither_stream(input.seed);
    const uint32_t bucket = smaller(input.codec.bucket, kPieceElements);
    for (uint32_t e = thread; e < piece.count; e += kBlockThreads) {
      const uint32_t i = piece.first + e;
      const CudaScale scale = shared.scales[e / bucket];
      if (!is_finite(scale.step)) {
        shared.codes[e] = 0;
        continue;
      }
      const float v = shared.piece.values[e];
      const uint32_t random = input.codec.stochastic != 0 ? dither_bits(stream, i) : 0;
      const uint8_t code = code_of<kKind>(input.codec, v * scale.inverse, random);
      shared.codes[e] = code;
      if (input.residual != nullptr)
        input.residual[i] = v - value_of<kKind>(input.codec, code) * scale.step;
    }
  }

  // A thread joins the codes of four bytes; the last ones byte by byte.
  GRADBUS_BOTH void pack(const BucketPiece& piece, uint32_t thread, const Shared& shared) const {
    const uint32_t bits = input.codec.bits;
    const uint32_t codes = 32 / bits;
    uint8_t* to = input.payload + kPayloadHeaderBytes + buckets_of(input) * 4 + packed(piece.first);
    for (uint32_t w = thread; w * codes < piece.count; w += kBlockThreads) {
      const uint32_t n = smaller(codes, piece.count - w * codes);
      uint32_t word = 0;
      for (uint32_t j = 0; j < n; ++j) word |= uint32_t{shared.codes[w * codes + j]} << (j * bits);
      if (n == codes) {
        reinterpret_cast<uint32_t*>(to)[w] = word;
        continue;
      }
      for (uint32_t byte = 0; byte < packed(n); ++byte)
        to[w * 4 + byte] = static_cast<uint8_t>(word >> (byte * 8));
    }
  }
};

template <CodeKind kKind>
struct BucketApplyWork {
  using Shared = NoShared;
  CudaApply input;

  GRADBUS_BOTH uint32_t blocks() const { return piece_blocks(input.count); }
  GRADBUS_BOTH static uint32_t phases() { return 1; }
  GRADBUS_BOTH void run(uint32_t, uint32_t block, uint32_t thread, Shared&) const {
    const uint32_t bits = input.codec.bits;
    const uint32_t bucket = input.codec.bucket;
    const auto* steps = reinterpret_cast<const float*>(input.payload + kPayloadHeaderBytes);
    const auto* codes = reinterpret_cast<const uint8_t*>(steps + parts_of(input.count, bucket));
    for_elements(input.count, block, thread, [&](uint32_t i) {
      const uint32_t in_byte = 8 / bits;
      const uint32_t byte = codes[i / in_byte];
      const auto code = static_cast<uint8_t>((byte >> (i % in_byte * bits)) & ((1u << bits) - 1));
      const float factor = input.scale * steps[i / bucket];
      const float value = value_of<kKind>(input.codec, code) * factor;
      input.to[i] = input.add != 0 ? input.to[i] + value : value;
    });
  }
};

}  // namespace gradbus
