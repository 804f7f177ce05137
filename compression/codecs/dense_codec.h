// Sends every element: as f32, or rounded to f16 or bf16 (nearest, ties to even). Payload, after
// the header of payload.h with detail 0:
//   offset 16  f32 | f16 | bf16  elements[count]
//
// Elements that are NaN or Inf are sent as they are. An element beyond 65504 becomes Inf in f16.
// Where an element is sent as NaN or Inf, its residual does not change.
#pragma once

#include "common/dtype.h"
#include "compression/codec.h"
#include "proto/numbers.h"

namespace gradbus {

class DenseCodec final : public Codec {
 public:
  // `dtype` is kF32, kF16 or kBF16.
  DenseCodec(CodecId id, DType dtype) : id_(id), dtype_(dtype) {}

  CodecId id() const { return id_; }
  DType dtype() const { return dtype_; }

  size_t payload_bytes_max(size_t count) const override;
  size_t encode(const EncodeInput& input, std::span<std::byte> payload) override;
  Status check(std::span<const std::byte> payload, size_t count) const override;
  void accumulate(std::span<const std::byte> payload, float scale,
                  std::span<float> sum) const override;
  void decode(std::span<const std::byte> payload, float scale,
              std::span<float> values) const override;

 private:
  const CodecId id_;
  const DType dtype_;
};

// The same numbers without a header, added by an all-reduce in one round. Each sum on the way
// rounds once more; no residual contains that error.
class DenseLinear final : public LinearCodec {
 public:
  DenseLinear(DType dtype, size_t count) : dtype_(dtype), count_(count) {}

  uint32_t rounds() const override { return 1; }
  DType dtype(uint32_t) const override { return dtype_; }
  size_t vector_elements(uint32_t) const override { return count_; }
  void project(uint32_t round, const EncodeInput& input, uint64_t shared_seed,
               std::span<const std::byte> sum_before, std::span<std::byte> vector) override;
  void finish(const EncodeInput& input, uint64_t shared_seed, uint32_t agents,
              std::span<const std::byte> sum, float scale, std::span<float> values) override;

 private:
  const DType dtype_;
  const size_t count_;
};

}  // namespace gradbus
