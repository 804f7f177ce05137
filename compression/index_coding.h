// Which elements were selected: ascending distinct indices below `count`, in the fewest bytes.
//
// An index is told by its gap, the number of elements skipped since the one before it. Four codes;
// the encoder takes the smallest for the indices at hand, by exact size:
//
//   raw          u32 little-endian each. Wins for a few indices only.
//   bitmap       bit i % 8 of byte i / 8 is element i; unused bits 0. From density 0.4 up.
//   stream vbyte gaps as Lemire, Kurz, Rupp 2018: ceil(entries / 4) control bytes, 2 bits an entry
//                from the low end (data bytes - 1), unused ones 0; then the data bytes,
//                little-endian. At least 10 bits an index: wins for clusters far apart.
//   golomb       gap = q * m + rest as one string of bits, each byte filled from its low end: q
//                zeros, a one, then the rest in floor(log2 m) bits or one more (Golomb 1966;
//                Gallager and Van Voorhis 1975). m is ln 2 times the mean distance, by
//                golomb_divisor(), so it is not sent. Padding of the last byte 0.
//
// Random indices have count * H(density) bits. Bits an index of bound and codes, computed:
//   density         0.0001  0.001  0.01   0.1    0.3    0.5
//   bound           14.73   11.41  8.08   4.69   2.94   2.00
//   golomb          14.76   11.44  8.11   4.73   2.96   2.00
//   Rice (m = 2^r)  14.79   11.50  8.11   4.76   2.96   2.00
//   Elias-Fano      15.22   11.95  8.56   5.25   3.67   3.00
// Elias-Fano with the same low bits is never below Rice, whose quotients sum up to less, and is off
// by 12 % at 0.1; its random access is of no use here. Pure functions; any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace gradbus {

// On the wire: bits 0 and 1 of the flags of a sparse payload.
enum class IndexCode : uint8_t { kRaw = 0, kBitmap = 1, kStreamVByte = 2, kGolomb = 3 };
// Bits 2 and 3 have the type of the values (compression/kernels/quantize/wire_values.h).
inline constexpr uint8_t kSparseFlags = 0x0f;

// m of a partition of `count` elements, `entries` of them selected; at least 1.
uint32_t golomb_divisor(size_t count, size_t entries);

size_t index_bytes(IndexCode code, std::span<const uint32_t> indices, size_t count);
// The smallest; of equals the one that is decoded fastest.
IndexCode smallest_index_code(std::span<const uint32_t> indices, size_t count);
// What the smallest code needs at most.
constexpr size_t index_bytes_max(size_t entries, size_t count) {
  const size_t bitmap = (count + 7) / 8;
  return entries < bitmap / 4 ? 4 * entries : bitmap;
}

// Writes exactly index_bytes() bytes, ascending `indices` below `count`, and returns that number.
size_t encode_indices(IndexCode code, std::span<const uint32_t> indices, size_t count,
                      std::span<std::byte> to);

// The same in the smallest code. Most often that is Golomb's, so where there is room for it
// whatever the gaps are it is written before its length is known.
struct EncodedIndices {
  IndexCode code = IndexCode::kGolomb;
  size_t bytes = 0;
};
EncodedIndices encode_smallest(std::span<const uint32_t> indices, size_t count,
                               std::span<std::byte> to);

struct GolombCode;

// Hands the indices out again, block by block. Safe for any bytes: what comes out is ascending,
// distinct and below `count`, and ends early where the bytes are not what an encoder writes.
class IndexReader {
 public:
  IndexReader(IndexCode code, std::span<const std::byte> bytes, size_t entries, size_t count);

  // Up to `max` more; fewer only after the last one or at a defect.
  size_t next(uint32_t* to, size_t max);
  // Every entry was handed out and nothing but padding is left.
  bool complete() const;

 private:
  size_t next_raw(uint32_t* to, size_t max);
  size_t next_bitmap(uint32_t* to, size_t max);
  size_t next_stream_vbyte(uint32_t* to, size_t max);
  size_t next_golomb(uint32_t* to, size_t max);
  size_t next_golomb_threes(const GolombCode& code, uint32_t* to, size_t max);
  size_t next_golomb_one(const GolombCode& code, uint32_t* to, size_t max);

  const IndexCode code_;
  const std::span<const std::byte> bytes_;
  const size_t entries_;
  const size_t count_;
  const uint32_t divisor_;
  size_t read_ = 0;         // entries handed out
  uint64_t following_ = 0;  // the lowest index that may come next
  uint64_t position_ = 0;   // in bytes_: golomb in bits, others in bytes
  uint64_t word_ = 0;       // bitmap: bits not yet handed out of the 8 bytes before position_
};

// Nothing but `entries` indices that an encoder may have written.
bool valid_indices(IndexCode code, std::span<const std::byte> bytes, size_t entries, size_t count);

}  // namespace gradbus
