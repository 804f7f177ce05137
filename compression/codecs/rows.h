// rows treats a tensor as a matrix and sends the rows that are not all zeros. The gradient of an
// embedding consists of such rows. f32 loses nothing, so it needs no residual.
//
// Payload, little-endian:
//   offset 0  16 bytes  header (payload.h): entries = elements of the rows sent, detail = 0
//             flags, bits 0 and 1  IndexCode (index_coding.h): the shortest
//                    bits 2 and 3  WireType of the values
//                    (compression/kernels/quantize/wire_values.h)
//   offset 16           values, entries of them, row after row
//   then                numbers of the rows, ascending, up to the end, in that code
//
// Rows are counted from the first element of the partition. The last row is short if the partition
// ends inside a row: its length is entries modulo the row length, and 0 means that it was not sent.
// A partition that begins inside a row is exact too. But one row of the tensor may then be two rows
// of the partition, so planners cut between rows.
//
// If no row is zero, a payload has 16 + 4 count + ceil(rows / 8) bytes: a bitmap more than dense.
// No payload is longer. A row of zeros and -0 is not sent and arrives as zeros.
//
// NaN and Inf are sent as they are. Where an element is sent as NaN or Inf, its residual does not
// change.
#pragma once

#include <memory>
#include <span>

#include "compression/codec.h"
#include "compression/index_coding.h"
#include "compression/kernels/quantize/wire_values.h"

namespace gradbus {

class Rows final : public Codec {
 public:
  Rows(size_t row_elements, WireType type, size_t count_max);

  size_t payload_bytes_max(size_t count) const override;
  size_t encode(const EncodeInput& input, std::span<std::byte> payload) override;
  Status check(std::span<const std::byte> payload, size_t count) const override;
  void accumulate(std::span<const std::byte> payload, float scale,
                  std::span<float> sum) const override;
  void clear_sent(std::span<const std::byte> payload, std::span<float> values) const override;

 private:
  // The parts of a payload that have been written.
  struct Written {
    size_t rows = 0;
    size_t elements = 0;
  };
  size_t rows_of(size_t elements) const { return (elements + row_ - 1) / row_; }
  size_t elements_of(size_t row, size_t count) const;
  IndexReader indices_of(std::span<const std::byte> payload) const;

  Written take_rows(std::span<const float> gradient, std::byte* to);
  Written take_compensated_rows(const EncodeInput& input, std::byte* to);
  void take_compensated(const EncodeInput& input, size_t first, size_t count, std::byte* to) const;
  Status check_indices(std::span<const std::byte> payload) const;
  template <typename Visit>
  void for_each_row(std::span<const std::byte> payload, const Visit& visit) const;

  const size_t row_;
  const WireType type_;
  const std::unique_ptr<uint32_t[]> indices_;
};

}  // namespace gradbus
