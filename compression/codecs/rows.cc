#include "compression/codecs/rows.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "common/check.h"
#include "compression/kernels/vector/compensate.h"
#include "compression/kernels/vector/zeros.h"
#include "compression/payload.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

constexpr size_t kRowsBlock = 512;   // values or indices processed at a time
constexpr size_t kRowElements = 64;  // the default of spec and tensor

Status refuse(const char* field, uint64_t found, const char* expected) {
  return refuse_payload(CodecId::kRows, field, found, expected);
}

WireType sent_type(const PayloadHeader& header) {
  return static_cast<WireType>(header.flags >> 2 & 3);
}

}  // namespace

Rows::Rows(size_t row_elements, WireType type, size_t count_max)
    : row_(row_elements), type_(type), indices_(new uint32_t[rows_of(count_max)]) {
  GRADBUS_CHECK(row_elements > 0);
}

size_t Rows::elements_of(size_t row, size_t count) const {
  return std::min(row_, count - row * row_);
}

// ---- encoder ------------------------------------------------------------------------------------

size_t Rows::payload_bytes_max(size_t count) const {
  const size_t rows = rows_of(count);
  return kPayloadHeaderBytes + count * wire_type_bytes(type_) + index_bytes_max(rows, rows);
}

size_t Rows::encode(const EncodeInput& input, std::span<std::byte> payload) {
  const size_t count = input.count();
  GRADBUS_CHECK(payload.size() >= payload_bytes_max(count));
  std::byte* const values = payload.data() + kPayloadHeaderBytes;
  const Written sent = input.residual.empty() ? take_rows(input.gradient, values)
                                              : take_compensated_rows(input, values);
  const std::span<const uint32_t> indices(indices_.get(), sent.rows);
  const size_t value_bytes = sent.elements * wire_type_bytes(type_);
  const EncodedIndices encoded =
      encode_smallest(indices, rows_of(count), payload.subspan(kPayloadHeaderBytes + value_bytes));
  const size_t bytes = value_bytes + encoded.bytes;
  PayloadHeader header{.codec = static_cast<uint8_t>(CodecId::kRows)};
  header.flags =
      static_cast<uint8_t>(static_cast<uint32_t>(encoded.code) | static_cast<uint32_t>(type_) << 2);
  header.count = static_cast<uint32_t>(count);
  header.bytes = static_cast<uint32_t>(bytes);
  header.entries = static_cast<uint32_t>(sent.elements);
  store_field(payload.data(), header);
  return kPayloadHeaderBytes + bytes;
}

Rows::Written Rows::take_rows(std::span<const float> gradient, std::byte* to) {
  const size_t count = gradient.size();
  Written sent;
  size_t at = first_not_zero(gradient.data(), count);
  while (at < count) {
    const size_t row = at / row_;
    const size_t elements = elements_of(row, count);
    store_wire_values(type_, &gradient[row * row_], elements,
                      to + sent.elements * wire_type_bytes(type_));
    indices_[sent.rows++] = static_cast<uint32_t>(row);
    sent.elements += elements;
    at = row * row_ + elements;
    at += first_not_zero(gradient.data() + at, count - at);
  }
  return sent;
}

// Rows may be longer than a block, so v is computed twice: once to check it and once to send it.
Rows::Written Rows::take_compensated_rows(const EncodeInput& input, std::byte* to) {
  std::array<float, kBlockElements> scratch;
  const size_t count = input.count();
  Written sent;
  for (size_t row = 0; row < rows_of(count); ++row) {
    const size_t first = row * row_;
    const size_t elements = elements_of(row, count);
    bool zeros = true;
    for (size_t i = 0; i < elements && zeros; i += kBlockElements) {
      const size_t n = std::min(kBlockElements, elements - i);
      zeros = first_not_zero(compensate(input, first + i, n, scratch.data()), n) == n;
    }
    if (zeros) {
      std::ranges::fill(input.residual.subspan(first, elements), 0.0F);
      continue;
    }
    take_compensated(input, first, elements, to + sent.elements * wire_type_bytes(type_));
    indices_[sent.rows++] = static_cast<uint32_t>(row);
    sent.elements += elements;
  }
  return sent;
}

void Rows::take_compensated(const EncodeInput& input, size_t first, size_t count,
                            std::byte* to) const {
  std::array<float, kRowsBlock> scratch;
  std::array<float, kRowsBlock> sent;
  for (size_t i = 0; i < count; i += kRowsBlock) {
    const size_t n = std::min(kRowsBlock, count - i);
    const float* const v = compensate(input, first + i, n, scratch.data());
    std::byte* const values = to + i * wire_type_bytes(type_);
    store_wire_values(type_, v, n, values);
    load_wire_values(type_, values, n, 1, sent.data());
    float* const residual = &input.residual[first + i];
    for (size_t k = 0; k < n; ++k)
      residual[k] = std::isfinite(sent[k]) ? v[k] - sent[k] : residual[k];
  }
}

// ---- decoder ------------------------------------------------------------------------------------

IndexReader Rows::indices_of(std::span<const std::byte> payload) const {
  const PayloadHeader header = payload_header(payload);
  return {static_cast<IndexCode>(header.flags & 3),
          payload_body(payload).subspan(header.entries * wire_type_bytes(type_)),
          rows_of(header.entries), rows_of(header.count)};
}

Status Rows::check(std::span<const std::byte> payload, size_t count) const {
  GRADBUS_RETURN_IF_ERROR(check_payload_header(payload, CodecId::kRows, count));
  const PayloadHeader header = payload_header(payload);
  if ((header.flags & ~kSparseFlags) != 0) return refuse("flags", header.flags, "at most 15");
  if (sent_type(header) != type_)
    return refuse("flags", header.flags, "the codec's own type of values");
  if (header.detail != 0) return refuse("detail", header.detail, "0");
  const size_t rest = header.entries % row_;
  if (header.entries > count || (rest != 0 && rest != count % row_))
    return refuse("entries", header.entries,
                  "those of whole rows, and of the partition's last one");
  if (header.bytes < header.entries * wire_type_bytes(type_))
    return refuse("bytes", header.bytes, "at least those of the values");
  return check_indices(payload);
}

Status Rows::check_indices(std::span<const std::byte> payload) const {
  const PayloadHeader header = payload_header(payload);
  std::array<uint32_t, kRowsBlock> indices;
  IndexReader reader = indices_of(payload);
  size_t last = SIZE_MAX;
  while (const size_t got = reader.next(indices.data(), kRowsBlock)) last = indices[got - 1];
  if (!reader.complete())
    return refuse("indices", rows_of(header.entries), "ascending ones below the partition's rows");
  const bool has_short_row = header.count % row_ != 0 && last == header.count / row_;
  if (has_short_row == (header.entries % row_ != 0)) return {};
  return refuse("indices", last,
                "the partition's last row exactly where entries have a part of one");
}

// Calls visit(values on the wire, first element, elements) for each row.
template <typename Visit>
void Rows::for_each_row(std::span<const std::byte> payload, const Visit& visit) const {
  const size_t count = payload_header(payload).count;
  std::array<uint32_t, kRowsBlock> indices;
  IndexReader reader = indices_of(payload);
  const std::byte* from = payload.data() + kPayloadHeaderBytes;
  while (const size_t got = reader.next(indices.data(), kRowsBlock)) {
    for (size_t i = 0; i < got; ++i) {
      const size_t elements = elements_of(indices[i], count);
      visit(from, indices[i] * row_, elements);
      from += elements * wire_type_bytes(type_);
    }
  }
}

void Rows::accumulate(std::span<const std::byte> payload, float scale, std::span<float> sum) const {
  GRADBUS_CHECK(payload_header(payload).count == sum.size());
  std::array<float, kRowsBlock> values;
  for_each_row(payload, [&](const std::byte* from, size_t first, size_t elements) {
    for (size_t i = 0; i < elements; i += kRowsBlock) {
      const size_t n = std::min(kRowsBlock, elements - i);
      load_wire_values(type_, from + i * wire_type_bytes(type_), n, scale, values.data());
      float* const to = &sum[first + i];
      for (size_t k = 0; k < n; ++k) to[k] += values[k];
    }
  });
}

void Rows::clear_sent(std::span<const std::byte> payload, std::span<float> values) const {
  GRADBUS_CHECK(payload_header(payload).count == values.size());
  for_each_row(payload, [&](const std::byte*, size_t first, size_t elements) {
    std::ranges::fill(values.subspan(first, elements), 0.0F);
  });
}

// ---- its row of the registry --------------------------------------------------------------------

namespace {

std::unique_ptr<Codec> make_rows(const CodecOptions& options, const CodecShape& shape) {
  const auto asked = static_cast<size_t>(options.number("dim"));
  const size_t row = asked > 0 ? asked : shape.columns > 0 ? shape.columns : kRowElements;
  return std::make_unique<Rows>(row, wire_type(options.text("values")), shape.count_max);
}

}  // namespace

std::span<const CodecRow> row_codecs() {
  static const std::vector<CodecRow> rows = {
      {.id = CodecId::kRows,
       .name = "rows",
       .sentence = "rows that are not all zeros, exactly: gradients of embeddings",
       .traits = {.unbiased = true, .lossless = true, .by_rows = true},
       .options = {{.name = "dim",
                    .default_text = "0",
                    .min = 0,
                    .max = static_cast<double>(kPartitionElementsMax),
                    .sentence = "elements of a row; 0: the tensor's columns",
                    .whole = true},
                   {.name = "values",
                    .default_text = "f32",
                    .choices = {"f32", "fp16", "bf16"},
                    .sentence = "type of the values of payloads"}},
       .contracts = [](const CodecOptions&) { return true; },
       .make = make_rows},
  };
  return rows;
}

}  // namespace gradbus
