// Encodes every element as a code of 2, 4 or 8 bits, with one f32 step for each bucket of elements.
// It is the common part of fp8, int8, int4, QSGD, TernGrad and natural compression. They differ in
// the bound that gives the step and in the codes; compression/kernels/quantize/quantize.h defines
// the values of the codes. Payload, after the header of payload.h with detail 0 (natural, fp8
// e4m3), 1 (fp8 e5m2) or the largest level:
//   offset 16        f32  steps[B], B = ceil(count / bucket): 0 or positive, or NaN (0x7fc00000)
//   offset 16 + 4 B  u8   codes[ceil(count * bits / 8)], element i in byte i * bits / 8 from bit
//                         i * bits % 8 on; bits after the last element are 0
//
// No |v| of a bucket is above its bound unless clipped. step = bound / top and x = v * (top /
// bound), where top is the value of the largest code. A step below 2^-110 becomes 0, and so does
// its whole bucket.
//
// The step of a bucket is NaN when an element is NaN or Inf, or when the largest value of its codes
// exceeds f32. Then its codes are 0 and its residual does not change.
//
// A bucket of up to kBlockElements (compression/kernels/vector/compensate.h) is read from memory
// once, a longer one twice.
#pragma once

#include <span>

#include "compression/codec.h"
#include "compression/kernels/quantize/quantize.h"
#include "proto/numbers.h"

namespace gradbus {

enum class Bound : uint8_t {
  kLargest,     // max |v|
  kNorm,        // L2 norm
  kClipped,     // min(max |v|, clip * root mean square)
  kPowerOfTwo,  // the next power of two above max |v|
};

struct QuantizerOptions {
  CodecId id = CodecId::kInt8;
  uint8_t detail = 0;
  CodeFormat code = {};
  Bound bound = Bound::kLargest;
  float top = 127;  // value of the largest code
  float clip = 0;   // kClipped
  // Elements, rounded up to a multiple of kBucketGranule; 0: the whole partition.
  size_t bucket = 0;
};

class BucketQuantizer final : public Codec {
 public:
  explicit BucketQuantizer(const QuantizerOptions& options);

  const QuantizerOptions& options() const { return options_; }

  size_t payload_bytes_max(size_t count) const override;
  size_t encode(const EncodeInput& input, std::span<std::byte> payload) override;
  Status check(std::span<const std::byte> payload, size_t count) const override;
  void accumulate(std::span<const std::byte> payload, float scale,
                  std::span<float> sum) const override;
  void decode(std::span<const std::byte> payload, float scale,
              std::span<float> values) const override;

 private:
  size_t buckets(size_t count) const { return (count + options_.bucket - 1) / options_.bucket; }
  size_t body_bytes(size_t count) const;
  // Offset of the first packed code of element `at`, a multiple of kBucketGranule, in a partition
  // of `count`.
  size_t code_offset(size_t count, size_t at) const;

  // Encodes whole blocks while it reads later ones. Returns the number of elements encoded.
  size_t encode_whole_blocks(const EncodeInput& input, size_t block,
                             std::span<std::byte> body) const;
  void encode_block(const EncodeInput& input, size_t first, size_t count,
                    std::span<std::byte> body) const;
  // Makes the scales of a block's buckets. Returns v of the block or, for a long bucket, of a
  // piece.
  const float* take_in(const EncodeInput& input, size_t first, size_t count, float* scratch,
                       BucketScale* scales) const;
  void encode_piece(const EncodeInput& input, size_t first, std::span<const float> values,
                    const BucketScale* scales, std::byte* packed,
                    const NextBlockStatistics* taken = nullptr) const;
  void store_steps(size_t first, size_t count, const BucketScale* scales,
                   std::span<std::byte> body) const;
  void apply(std::span<const std::byte> payload, float scale, bool add, std::span<float> to) const;
  void apply_piece(const std::byte* packed, const float* factors, bool add,
                   std::span<float> to) const;

  const QuantizerOptions options_;  // its bucket is rounded and not 0
  // Elements of a block: several whole buckets, or one longer bucket.
  const size_t block_;
  const size_t kept_block_;  // the same with a residual
};

}  // namespace gradbus
