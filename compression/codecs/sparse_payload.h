// The payload that all selecting codecs share, and their base classes. The codecs differ only in
// which elements they select.
//
//   offset 0  16 bytes  header (payload.h): entries = elements selected, detail = 0
//             flags, bits 0 and 1  IndexCode (index_coding.h): the shortest, a bitmap from 0.3 up
//                    bits 2 and 3  WireType of the values
//                    (compression/kernels/quantize/wire_values.h) bit 7         not finite:
//                    payload.h says what follows instead
//   offset 16           values, entries of them, little-endian, in order of their indices
//   then                indices, up to the end, in that code
//
// At density 0.001 of random indices an entry takes 4 + 11.44 / 8 = 5.43 bytes in f32 and 3.43 in
// fp16, plus the header.
//
// With error feedback, v goes to the residual while the partition is read. Then the decoded value
// of each sent element is subtracted. That leaves 0 for f32, and the rounding error for fp16 and
// bf16. A partition that is not finite does not change the residual (compensated_partition.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compression/codec.h"
#include "compression/kernels/quantize/wire_values.h"
#include "compression/payload.h"

namespace gradbus {

inline constexpr size_t kAllFinite = SIZE_MAX;

// The selected elements of one partition by ascending index. The codec that selected them owns the
// memory.
struct Selection {
  std::span<const uint32_t> indices = {};
  std::span<const float> values = {};
  size_t not_finite = kAllFinite;  // index of v's first NaN or Inf; then nothing is selected
  bool cleared = false;            // whether selected elements are already 0 in the residual
};

size_t sparse_bytes_max(WireType type, size_t count, size_t entries_max);
size_t encode_sparse(CodecId codec, WireType type, size_t count, const Selection& selection,
                     std::span<std::byte> payload);
// Whether encode_sparse() writes a bitmap for this many entries.
bool wants_bitmap(size_t entries, size_t count);
// Completes a payload whose values are already in place. Its indices are given as a bitmap.
size_t seal_sparse(CodecId codec, WireType type, size_t count, size_t entries,
                   const uint64_t* masks, std::span<std::byte> payload);
// The same with a list of indices.
size_t seal_sparse(CodecId codec, WireType type, size_t count, std::span<const uint32_t> indices,
                   std::span<std::byte> payload);
// Returns kCorrupt unless encode_sparse() could have written the payload with this many entries.
Status check_sparse(std::span<const std::byte> payload, CodecId codec, WireType type, size_t count,
                    size_t entries_min, size_t entries_max);
// sum[index] += scale * value
void accumulate_sparse(std::span<const std::byte> payload, float scale, std::span<float> sum);
// Reads the entries by ascending index into arrays of at least header.entries (one entry for a
// payload that is not finite). Returns their number.
size_t read_sparse(std::span<const std::byte> payload, std::span<uint32_t> indices,
                   std::span<float> values);
// values[index] = 0
void clear_sparse(std::span<const std::byte> payload, std::span<float> values);
// residual[index] -= value, for the payload made from the selection. The residual becomes 0 where
// the value overflowed to Inf in fp16 or bf16.
void subtract_sent(std::span<const std::byte> payload, const Selection& selection,
                   std::span<float> residual);

// A codec whose payload has this form.
class SparseCodec : public Codec {
 public:
  SparseCodec(CodecId id, WireType type) : id_(id), type_(type) {}

  CodecId id() const { return id_; }
  WireType type() const { return type_; }

  size_t payload_bytes_max(size_t count) const final;
  Status check(std::span<const std::byte> payload, size_t count) const final;
  void accumulate(std::span<const std::byte> payload, float scale,
                  std::span<float> sum) const final;
  void clear_sent(std::span<const std::byte> payload, std::span<float> values) const final;

 protected:
  // The range of entries in a payload of `count` > 0 elements.
  virtual size_t entries_min(size_t count) const = 0;
  virtual size_t entries_max(size_t count) const = 0;
  // Whether sent values are exact, so that sent elements may be cleared in the residual.
  bool sends_exactly() const { return type_ == WireType::kF32; }

 private:
  const CodecId id_;
  const WireType type_;
};

// A codec that selects first and then encodes.
class SelectingCodec : public SparseCodec {
 public:
  using SparseCodec::SparseCodec;
  size_t encode(const EncodeInput& input, std::span<std::byte> payload) final;

 protected:
  // Selects from at least one element. Leaves v in the residual, if there is one.
  virtual Selection select(const EncodeInput& input) = 0;
};

}  // namespace gradbus
