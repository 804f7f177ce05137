// Kernels of fp8, int8, int4, qsgd, terngrad and natural (codecs/bucket_quantizer.h).
//
// A block takes whole buckets, up to kPieceElements, and reads them once; or one longer bucket,
// which it reads twice, a piece at a time: alone, so a bucket of a whole large unit keeps a device
// waiting for one block.
#pragma once

#include "compression/cuda/elements.h"
#include "compression/cuda/grid.h"
#include "compression/kernels/lanes.h"

namespace gradbus {

// Elements that a block of the grid takes.
GRADBUS_BOTH constexpr uint32_t bucket_block(uint32_t bucket) {
  return bucket > kPieceElements ? bucket : kPieceElements / bucket * bucket;
}

template <CodeKind kKind>
struct BucketEncodeWork {
  static constexpr uint32_t kGranules = kPieceElements / kBucketGranule;
  // Of each piece: what the step comes from, and then, once that is known, the codes.
  static constexpr uint32_t kMeasurePhases = 3;
  static constexpr uint32_t kCodePhases = 2;

  struct Shared {
    double lanes[kGranules][kSumLanes];  // of each bucket of the piece
    double squares[kGranules];           // of each bucket of the block
    uint32_t largest[kGranules];         // of each granule of the piece
    uint32_t most[kGranules];            // of each bucket of the block
    CudaScale scales[kGranules];
    float values[kPieceElements];
    alignas(16) uint8_t codes[kPieceElements];
  };

  CudaEncode input;

  // A piece of a block, whose elements begin at `first` of the unit.
  struct Piece {
    uint32_t block_first;
    uint32_t block_count;
    uint32_t first;
    uint32_t count;
    bool last;
  };

  GRADBUS_BOTH uint32_t bucket() const { return input.codec.bucket; }
  GRADBUS_BOTH uint32_t buckets() const { return parts_of(input.count, bucket()); }
  GRADBUS_BOTH uint32_t pieces() const {
    return piece_blocks(smaller(bucket_block(bucket()), input.count));
  }
  GRADBUS_BOTH uint32_t blocks() const {
    return larger(1u, parts_of(input.count, bucket_block(bucket())));
  }
  GRADBUS_BOTH uint32_t phases() const { return pieces() * (kMeasurePhases + kCodePhases); }

  GRADBUS_BOTH void run(uint32_t phase, uint32_t block, uint32_t thread, Shared& shared) const {
    if (phase == 0 && block == 0 && thread == 0) store_header(input, body_bytes());
    const uint32_t measures = pieces() * kMeasurePhases;
    const bool measuring = phase < measures;
    const uint32_t of_piece = measuring ? kMeasurePhases : kCodePhases;
    const uint32_t step = measuring ? phase : phase - measures;
    const Piece piece = piece_of(block, step / of_piece);
    if (piece.count == 0) return;
    if (!measuring)
      return step % of_piece == 0 ? code(piece, thread, shared) : pack(piece, thread, shared);
    if (step % of_piece == 0) return load(piece, thread, shared);
    if (step % of_piece == 1) return gather(piece, thread, shared);
    fold(piece, thread, shared);
  }

 private:
  GRADBUS_BOTH uint32_t body_bytes() const { return buckets() * 4 + packed(input.count); }
  GRADBUS_BOTH uint32_t packed(uint32_t count) const {
    return static_cast<uint32_t>((uint64_t{count} * input.codec.bits + 7) / 8);
  }

  GRADBUS_BOTH Piece piece_of(uint32_t block, uint32_t index) const {
    Piece piece{};
    piece.block_first = block * bucket_block(bucket());
    piece.block_count = smaller(bucket_block(bucket()), input.count - piece.block_first);
    const uint32_t at = smaller(index * kPieceElements, piece.block_count);
    piece.first = piece.block_first + at;
    piece.count = smaller(kPieceElements, piece.block_count - at);
    piece.last = at + piece.count == piece.block_count;
    return piece;
  }

  // Zeros behind the end: they are no largest and add nothing.
  GRADBUS_BOTH void load(const Piece& piece, uint32_t thread, Shared& shared) const {
    for (uint32_t e = thread; e < kPieceElements; e += kBlockThreads)
      shared.values[e] = e < piece.count ? compensated(input, piece.first + e) : 0.0F;
  }

  // The largest of each granule, and for each bucket the sums of its 16 lanes.
  GRADBUS_BOTH void gather(const Piece& piece, uint32_t thread, Shared& shared) const {
    if (thread < kGranules) {
      uint32_t largest = 0;
      for (uint32_t j = 0; j < kBucketGranule; ++j) {  // turned, so that each reads another bank
        const uint32_t e = thread * kBucketGranule + (j + thread) % kBucketGranule;
        largest = larger(largest, bits_of(shared.values[e]) & 0x7fffffff);
      }
      shared.largest[thread] = largest;
    }
    if (!asks_for_squares(input.codec)) return;
    const uint32_t run = smaller(bucket(), kPieceElements);
    for (uint32_t b = thread / kSumLanes; b * run < piece.count; b += kBlockThreads / kSumLanes) {
      const uint32_t end = smaller((b + 1) * run, piece.count);
      double sum = 0;
      for (uint32_t e = b * run + thread % kSumLanes; e < end; e += kSumLanes)
        sum += static_cast<double>(shared.values[e]) * shared.values[e];
      shared.lanes[b][thread % kSumLanes] = sum;
    }
  }

  // Thread b: adds a piece to its bucket, and after the last one makes the step.
  GRADBUS_BOTH void fold(const Piece& piece, uint32_t thread, Shared& shared) const {
    const uint32_t at = thread * smaller(bucket(), kPieceElements);
    if (at >= piece.count || thread >= kGranules) return;
    const uint32_t end = smaller(at + bucket(), piece.count);
    const bool opens = piece.first == piece.block_first;
    uint32_t most = opens ? 0 : shared.most[thread];
    for (uint32_t g = at / kBucketGranule; g * kBucketGranule < end; ++g)
      most = larger(most, shared.largest[g]);
    double squares = opens ? 0 : shared.squares[thread];
    if (asks_for_squares(input.codec)) squares += tree_sum(shared.lanes[thread]);
    shared.most[thread] = most;
    shared.squares[thread] = squares;
    if (!piece.last) return;
    const uint32_t count = bucket() > kPieceElements ? piece.block_count : end - at;
    const CudaScale scale = scale_of(input.codec, most, squares, count);
    shared.scales[thread] = scale;
    steps()[piece.block_first / bucket() + thread] = scale.step;
  }

  GRADBUS_BOTH void code(const Piece& piece, uint32_t thread, Shared& shared) const {
    const DitherStream stream = dither_stream(input.seed);
    const bool kept = pieces() == 1;  // v is still there
    for (uint32_t e = thread; e < piece.count; e += kBlockThreads) {
      const uint32_t i = piece.first + e;
      const CudaScale scale = shared.scales[(i - piece.block_first) / bucket()];
      if (!is_finite(scale.step)) {
        shared.codes[e] = 0;
        continue;
      }
      const float v = kept ? shared.values[e] : compensated(input, i);
      const uint32_t random = input.codec.stochastic != 0 ? dither_bits(stream, i) : 0;
      const uint8_t code = code_of<kKind>(input.codec, v * scale.inverse, random);
      shared.codes[e] = code;
      if (input.residual != nullptr)
        input.residual[i] = v - value_of<kKind>(input.codec, code) * scale.step;
    }
  }

  // A thread joins the codes of four bytes; the last ones byte by byte.
  GRADBUS_BOTH void pack(const Piece& piece, uint32_t thread, const Shared& shared) const {
    const uint32_t bits = input.codec.bits;
    const uint32_t codes = 32 / bits;
    uint8_t* to = input.payload + kPayloadHeaderBytes + buckets() * 4 + packed(piece.first);
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

  GRADBUS_BOTH float* steps() const {
    return reinterpret_cast<float*>(input.payload + kPayloadHeaderBytes);
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
