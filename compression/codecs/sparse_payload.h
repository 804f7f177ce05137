// The payload that all codecs of selections share, and the codec class around it: what differs is
// which elements are selected.
//
//   offset 0  16 bytes  header (payload.h): entries = elements selected, detail = 0
//             flags, bits 0 and 1  IndexCode (index_coding.h): the shortest, a bitmap from 0.3 up
//                    bits 2 and 3  WireType of the values (kernels/wire_values.h)
//                    bit 7         not finite: payload.h says what follows instead
//   offset 16           values, entries of them, little-endian, in order of their indices
//   then                indices, up to the end, in that code
//
// At density 0.001 of random indices that is 4 + 11.44 / 8 = 5.43 bytes an entry in f32 and 3.43 in
// fp16, and the header.
//
// With error feedback v goes to the residual as the unit is read; then the decoded value is taken
// from each element that was sent, which leaves 0 for f32 and the rounding error for fp16 and bf16.
// A unit that is not finite leaves the residual as it was (compensated_unit.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "compression/codec.h"
#include "compression/kernels/wire_values.h"
#include "compression/payload.h"

namespace gradbus {

inline constexpr size_t kAllFinite = SIZE_MAX;

// Elements of one unit by ascending index; lives in the codec that selected them.
struct Selection {
  std::span<const uint32_t> indices = {};
  std::span<const float> values = {};
  size_t not_finite = kAllFinite;  // the index of v's first NaN or Inf: nothing is selected then
  bool cleared = false;            // the residual lacks already what was selected
};

size_t sparse_bytes_max(WireType type, size_t count, size_t entries_max);
size_t encode_sparse(CodecId codec, WireType type, size_t count, const Selection& selection,
                     std::span<std::byte> payload);
// Of enough entries that encode_sparse() writes a bitmap.
bool wants_bitmap(size_t entries, size_t count);
// The same payload where the values lie in it already, and their indices are bits.
size_t seal_sparse(CodecId codec, WireType type, size_t count, size_t entries,
                   const uint64_t* masks, std::span<std::byte> payload);
// ... or listed.
size_t seal_sparse(CodecId codec, WireType type, size_t count, std::span<const uint32_t> indices,
                   std::span<std::byte> payload);
// kCorrupt unless encode_sparse() could have written it with that many entries.
Status check_sparse(std::span<const std::byte> payload, CodecId codec, WireType type, size_t count,
                    size_t entries_min, size_t entries_max);
// sum[index] += scale * value
void accumulate_sparse(std::span<const std::byte> payload, float scale, std::span<float> sum);
// The entries, by ascending index, to arrays of at least header.entries (one entry for a payload
// that is not finite); returns their number.
size_t read_sparse(std::span<const std::byte> payload, std::span<uint32_t> indices,
                   std::span<float> values);
// values[index] = 0
void clear_sparse(std::span<const std::byte> payload, std::span<float> values);
// residual[index] -= value, of the payload that was made of the selection; 0 where the value is not
// finite, having overflowed in fp16 or bf16.
void subtract_sent(std::span<const std::byte> payload, const Selection& selection,
                   std::span<float> residual);

// Whose payload is of this form.
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
  // What a payload of `count` > 0 elements may hold.
  virtual size_t entries_min(size_t count) const = 0;
  virtual size_t entries_max(size_t count) const = 0;
  // What is sent leaves nothing: it may be cleared.
  bool sends_exactly() const { return type_ == WireType::kF32; }

 private:
  const CodecId id_;
  const WireType type_;
};

// One that selects first and encodes then.
class SelectingCodec : public SparseCodec {
 public:
  using SparseCodec::SparseCodec;
  size_t encode(const EncodeInput& input, std::span<std::byte> payload) final;

 protected:
  // Of at least one element. Leaves v in the residual, if there is one.
  virtual Selection select(const EncodeInput& input) = 0;
};

}  // namespace gradbus
