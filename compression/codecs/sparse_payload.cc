#include "compression/codecs/sparse_payload.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>

#include "common/check.h"
#include "compression/codecs/compensated_partition.h"
#include "compression/index_coding.h"
#include "compression/kernels/select/expand.h"

namespace gradbus {
namespace {

constexpr size_t kBlock = 512;  // entries processed at a time; they fit the first-level cache

IndexCode index_code(const PayloadHeader& header) {
  return static_cast<IndexCode>(header.flags & 3);
}
uint8_t type_number(const PayloadHeader& header) { return header.flags >> 2 & 3; }
WireType values_type(const PayloadHeader& header) {
  return static_cast<WireType>(type_number(header));
}

IndexReader index_reader(std::span<const std::byte> payload) {
  const PayloadHeader header = payload_header(payload);
  const size_t value_bytes = header.entries * wire_type_bytes(values_type(header));
  return {index_code(header), payload_body(payload).subspan(value_bytes), header.entries,
          header.count};
}

// Calls visit(indices, values, n) for each block.
template <typename Visit>
void for_each_block(std::span<const std::byte> payload, float scale, const Visit& visit) {
  std::array<uint32_t, kBlock> indices;
  std::array<float, kBlock> values;
  const WireType type = values_type(payload_header(payload));
  IndexReader reader = index_reader(payload);
  const std::byte* from = payload.data() + kPayloadHeaderBytes;
  while (const size_t got = reader.next(indices.data(), kBlock)) {
    load_wire_values(type, from, got, scale, values.data());
    visit(indices.data(), values.data(), got);
    from += got * wire_type_bytes(type);
  }
}

// The values of a piece are adjacent, so its indices need not be listed.
void accumulate_bitmap(std::span<const std::byte> payload, float scale, std::span<float> sum) {
  std::array<float, kBlock + kExpandSlack> values;
  const PayloadHeader header = payload_header(payload);
  const WireType type = values_type(header);
  const size_t value_bytes = header.entries * wire_type_bytes(type);
  const std::byte* from = payload_body(payload).data();
  const std::span<const std::byte> bits = payload_body(payload).subspan(value_bytes);
  static_assert(kBlock % 8 == 0);
  for (size_t first = 0; first < sum.size(); first += kBlock) {
    const size_t count = std::min(kBlock, sum.size() - first);
    const std::byte* const piece = &bits[first / 8];
    const size_t found = count_bits(piece, count);
    load_wire_values(type, from, found, scale, values.data());
    add_expanded(piece, count, values.data(), &sum[first]);
    from += found * wire_type_bytes(type);
  }
}

size_t seal(CodecId codec, WireType type, size_t count, IndexCode code, size_t entries,
            size_t index_bytes, std::span<std::byte> payload) {
  const size_t bytes = entries * wire_type_bytes(type) + index_bytes;
  GRADBUS_CHECK(bytes <= UINT32_MAX);
  PayloadHeader header{.codec = static_cast<uint8_t>(codec)};
  header.flags =
      static_cast<uint8_t>(static_cast<uint32_t>(code) | static_cast<uint32_t>(type) << 2);
  header.count = static_cast<uint32_t>(count);
  header.bytes = static_cast<uint32_t>(bytes);
  header.entries = static_cast<uint32_t>(entries);
  store_field(payload.data(), header);
  return kPayloadHeaderBytes + bytes;
}

}  // namespace

// ---- payload ------------------------------------------------------------------------------------

size_t sparse_bytes_max(WireType type, size_t count, size_t entries_max) {
  const size_t body = entries_max * wire_type_bytes(type) + index_bytes_max(entries_max, count);
  return std::max(kPayloadHeaderBytes + body, kNotFiniteBytes);
}

size_t encode_sparse(CodecId codec, WireType type, size_t count, const Selection& selection,
                     std::span<std::byte> payload) {
  const size_t entries = selection.indices.size();
  GRADBUS_CHECK(kPayloadHeaderBytes + entries * wire_type_bytes(type) <= payload.size() &&
                selection.values.size() == entries);
  store_wire_values(type, selection.values.data(), entries, &payload[kPayloadHeaderBytes]);
  return seal_sparse(codec, type, count, selection.indices, payload);
}

// From a density of 0.3 up, a bitmap is longer than the Golomb code by at most 0.11 bits an
// element, 1 % of the payload. It is several times as fast to write and to read.
bool wants_bitmap(size_t entries, size_t count) { return 10 * entries >= 3 * count && count > 0; }

size_t seal_sparse(CodecId codec, WireType type, size_t count, std::span<const uint32_t> indices,
                   std::span<std::byte> payload) {
  const std::span<std::byte> to =
      payload.subspan(kPayloadHeaderBytes + indices.size() * wire_type_bytes(type));
  EncodedIndices encoded{.code = IndexCode::kBitmap};
  if (wants_bitmap(indices.size(), count))
    encoded.bytes = encode_indices(encoded.code, indices, count, to);
  else
    encoded = encode_smallest(indices, count, to);
  return seal(codec, type, count, encoded.code, indices.size(), encoded.bytes, payload);
}

size_t seal_sparse(CodecId codec, WireType type, size_t count, size_t entries,
                   const uint64_t* masks, std::span<std::byte> payload) {
  static_assert(std::endian::native == std::endian::little);
  const std::span<std::byte> bits =
      payload.subspan(kPayloadHeaderBytes + entries * wire_type_bytes(type), (count + 7) / 8);
  std::memcpy(bits.data(), masks, bits.size());
  return seal(codec, type, count, IndexCode::kBitmap, entries, bits.size(), payload);
}

Status check_sparse(std::span<const std::byte> payload, CodecId codec, WireType type, size_t count,
                    size_t entries_min, size_t entries_max) {
  GRADBUS_RETURN_IF_ERROR(check_payload_header(payload, codec, count));
  if (is_not_finite(payload)) return {};
  const PayloadHeader header = payload_header(payload);
  if ((header.flags & ~kSparseFlags) != 0)
    return refuse_payload(codec, "flags", header.flags, "at most 15");
  if (values_type(header) != type)
    return refuse_payload(codec, "flags", header.flags, "the codec's own type of values");
  if (header.detail != 0) return refuse_payload(codec, "detail", header.detail, "0");
  if (header.entries < entries_min || header.entries > entries_max)
    return refuse_payload(codec, "entries", header.entries, "what the ratio gives");
  const size_t value_bytes = header.entries * wire_type_bytes(type);
  if (header.bytes < value_bytes)
    return refuse_payload(codec, "bytes", header.bytes, "at least those of the values");
  if (!valid_indices(index_code(header), payload_body(payload).subspan(value_bytes), header.entries,
                     count))
    return refuse_payload(codec, "indices", header.entries, "ascending ones below the count");
  return {};
}

void accumulate_sparse(std::span<const std::byte> payload, float scale, std::span<float> sum) {
  GRADBUS_CHECK(payload_header(payload).count == sum.size());
  if (is_not_finite(payload)) return accumulate_not_finite(payload, sum);
  if (index_code(payload_header(payload)) == IndexCode::kBitmap)
    return accumulate_bitmap(payload, scale, sum);
  for_each_block(payload, scale, [&](const uint32_t* indices, const float* values, size_t count) {
    for (size_t i = 0; i < count; ++i) sum[indices[i]] += values[i];
  });
}

size_t read_sparse(std::span<const std::byte> payload, std::span<uint32_t> indices,
                   std::span<float> values) {
  if (is_not_finite(payload)) {
    indices[0] = load_field<uint32_t>(payload_body(payload).data());
    values[0] = load_field<float>(payload_body(payload).data() + 4);
    return 1;
  }
  size_t read = 0;
  for_each_block(payload, 1, [&](const uint32_t* block, const float* from, size_t count) {
    std::copy_n(block, count, &indices[read]);
    std::copy_n(from, count, &values[read]);
    read += count;
  });
  return read;
}

void clear_sparse(std::span<const std::byte> payload, std::span<float> values) {
  GRADBUS_CHECK(payload_header(payload).count == values.size());
  if (is_not_finite(payload)) return;
  std::array<uint32_t, kBlock> indices;
  IndexReader reader = index_reader(payload);
  while (const size_t got = reader.next(indices.data(), indices.size()))
    for (size_t i = 0; i < got; ++i) values[indices[i]] = 0;
}

void subtract_sent(std::span<const std::byte> payload, const Selection& selection,
                   std::span<float> residual) {
  std::array<float, kBlock> values;
  const WireType type = values_type(payload_header(payload));
  const std::byte* from = payload.data() + kPayloadHeaderBytes;
  for (size_t first = 0; first < selection.indices.size(); first += kBlock) {
    const auto indices =
        selection.indices.subspan(first, std::min(kBlock, selection.indices.size() - first));
    load_wire_values(type, from + first * wire_type_bytes(type), indices.size(), 1, values.data());
    for (size_t i = 0; i < indices.size(); ++i) {
      float& kept = residual[indices[i]];
      kept = std::isfinite(values[i]) ? kept - values[i] : 0;
    }
  }
}

// ---- codec --------------------------------------------------------------------------------------

size_t SparseCodec::payload_bytes_max(size_t count) const {
  return sparse_bytes_max(type_, count, entries_max(count));
}

size_t SelectingCodec::encode(const EncodeInput& input, std::span<std::byte> payload) {
  const size_t count = input.count();
  GRADBUS_CHECK(payload.size() >= payload_bytes_max(count));
  if (count == 0) return encode_sparse(id(), type(), 0, {}, payload);
  const Selection selection = select(input);
  if (const size_t bad = selection.not_finite; bad != kAllFinite)
    return encode_not_finite(id(), count, bad, not_finite_element(input, bad), payload);
  const size_t bytes = encode_sparse(id(), type(), count, selection, payload);
  if (!input.residual.empty() && !selection.cleared)
    subtract_sent(payload.first(bytes), selection, input.residual);
  return bytes;
}

Status SparseCodec::check(std::span<const std::byte> payload, size_t count) const {
  if (count == 0) return check_sparse(payload, id_, type_, 0, 0, 0);
  return check_sparse(payload, id_, type_, count, entries_min(count), entries_max(count));
}

void SparseCodec::accumulate(std::span<const std::byte> payload, float scale,
                             std::span<float> sum) const {
  accumulate_sparse(payload, scale, sum);
}

void SparseCodec::clear_sent(std::span<const std::byte> payload, std::span<float> values) const {
  clear_sparse(payload, values);
}

}  // namespace gradbus
