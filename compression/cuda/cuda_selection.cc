#include "compression/cuda/cuda_selection.h"

#include <bit>

#include "common/check.h"
#include "compression/codecs/sparse_payload.h"

namespace gradbus {
namespace {

struct ListHeader {
  uint32_t entries = 0;
  uint32_t not_finite = UINT32_MAX;
  uint32_t bits = 0;
  uint32_t unused = 0;
};
static_assert(sizeof(ListHeader) == kPayloadHeaderBytes);

}  // namespace

size_t payload_of_list(const CudaCodec& codec, size_t count, uint32_t entries,
                       std::span<const std::byte> list, std::span<std::byte> payload) {
  GRADBUS_CHECK(list.size() >= cuda_payload_bytes(codec, count, entries));
  const auto header = load_field<ListHeader>(list.data());
  const auto id = static_cast<CodecId>(codec.id);
  if (header.not_finite != UINT32_MAX)
    return encode_not_finite(id, count, header.not_finite, std::bit_cast<float>(header.bits),
                             payload);
  GRADBUS_CHECK(header.entries <= entries);
  const auto* values = reinterpret_cast<const float*>(list.data() + kPayloadHeaderBytes);
  const auto* indices = reinterpret_cast<const uint32_t*>(values + entries);
  const Selection selection{{indices, header.entries}, {values, header.entries}};
  return encode_sparse(id, static_cast<WireType>(codec.wire), count, selection, payload);
}

size_t list_of_payload(std::span<const std::byte> payload, uint32_t entries,
                       std::span<std::byte> list) {
  const size_t bytes = cuda_payload_bytes({.family = CudaFamily::kSelections}, 0, entries);
  GRADBUS_CHECK(list.size() >= bytes && payload_header(payload).entries <= entries);
  ListHeader header;
  if (is_not_finite(payload)) {
    header.not_finite = load_field<uint32_t>(payload_body(payload).data());
    header.bits = load_field<uint32_t>(payload_body(payload).data() + 4);
  } else {
    auto* values = reinterpret_cast<float*>(list.data() + kPayloadHeaderBytes);
    auto* indices = reinterpret_cast<uint32_t*>(values + entries);
    header.entries =
        static_cast<uint32_t>(read_sparse(payload, {indices, entries}, {values, entries}));
  }
  store_field(list.data(), header);
  return bytes;
}

}  // namespace gradbus
