#include "compression/codecs/every_element.h"

#include <limits>

#include "common/check.h"

namespace gradbus {

void store_every_element_header(CodecId codec, uint8_t detail, size_t count, size_t body_bytes,
                                std::span<std::byte> payload) {
  GRADBUS_CHECK(payload.size() >= kPayloadHeaderBytes + body_bytes);
  GRADBUS_CHECK(body_bytes <= std::numeric_limits<uint32_t>::max());
  PayloadHeader header{.codec = static_cast<uint8_t>(codec), .detail = detail};
  header.count = static_cast<uint32_t>(count);
  header.bytes = static_cast<uint32_t>(body_bytes);
  header.entries = header.count;
  store_field(payload.data(), header);
}

Status check_every_element_header(std::span<const std::byte> payload, CodecId codec, uint8_t detail,
                                  size_t count, size_t body_bytes) {
  GRADBUS_RETURN_IF_ERROR(check_payload_header(payload, codec, count));
  const PayloadHeader header = payload_header(payload);
  if (header.flags != 0) return refuse_payload(codec, "flags", header.flags, "0");
  if (header.detail != detail)
    return refuse_payload(codec, "detail", header.detail, "what the options say");
  if (header.entries != count) return refuse_payload(codec, "entries", header.entries, "count");
  if (header.bytes != body_bytes)
    return refuse_payload(codec, "bytes", header.bytes, "what count and options say");
  return {};
}

}  // namespace gradbus
