#include "compression/payload.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <string>

#include "common/check.h"
#include "common/errors.h"
#include "compression/registry.h"

namespace gradbus {

Status refuse_payload(CodecId codec, const char* field, uint64_t found, const char* expected) {
  return error("D611", "payload of codec " + std::string(codec_name(codec)) + ": field " + field +
                           " is " + std::to_string(found) + ", expected " + expected);
}

namespace {

Status check_not_finite(std::span<const std::byte> payload, CodecId codec, size_t count) {
  const PayloadHeader header = payload_header(payload);
  if (header.flags != kPayloadNotFinite)
    return refuse_payload(codec, "flags", header.flags, "no others beside \"not finite\"");
  if (header.detail != 0) return refuse_payload(codec, "detail", header.detail, "0");
  if (header.entries != 0) return refuse_payload(codec, "entries", header.entries, "0");
  if (payload.size() != kNotFiniteBytes)
    return refuse_payload(codec, "bytes", payload.size(), "24 for a partition that is not finite");
  const auto index = load_field<uint32_t>(&payload[kPayloadHeaderBytes]);
  if (index >= count) return refuse_payload(codec, "index", index, "less than count");
  const auto bits = load_field<uint32_t>(&payload[kPayloadHeaderBytes + 4]);
  if (std::isfinite(std::bit_cast<float>(bits)))
    return refuse_payload(codec, "bits", bits, "those of a NaN or Inf");
  return {};
}

}  // namespace

Status check_payload_header(std::span<const std::byte> payload, CodecId codec, size_t count) {
  if (payload.size() < kPayloadHeaderBytes)
    return refuse_payload(codec, "bytes", payload.size(), "at least 16, the header");
  const PayloadHeader header = payload_header(payload);
  if (header.codec != static_cast<uint8_t>(codec))
    return refuse_payload(codec, "codec", header.codec, "that codec's number");
  if (header.version != kPayloadVersion)
    return refuse_payload(codec, "version", header.version, "1");
  if (header.count != count) return refuse_payload(codec, "count", header.count, "the partition's");
  if (header.bytes != payload.size() - kPayloadHeaderBytes)
    return refuse_payload(codec, "bytes", header.bytes, "those of the body");
  return is_not_finite(payload) ? check_not_finite(payload, codec, count) : Status();
}

size_t encode_not_finite(CodecId codec, size_t count, size_t index, float value,
                         std::span<std::byte> payload) {
  GRADBUS_CHECK(payload.size() >= kNotFiniteBytes && count > 0);
  PayloadHeader header{.codec = static_cast<uint8_t>(codec), .flags = kPayloadNotFinite};
  header.count = static_cast<uint32_t>(count);
  header.bytes = kNotFiniteBytes - kPayloadHeaderBytes;
  store_field(payload.data(), header);
  // The element may have changed since a NaN or Inf was found in it.
  if (std::isfinite(value)) value = std::numeric_limits<float>::quiet_NaN();
  store_field(&payload[kPayloadHeaderBytes], static_cast<uint32_t>(std::min(index, count - 1)));
  store_field(&payload[kPayloadHeaderBytes + 4], value);
  return kNotFiniteBytes;
}

void accumulate_not_finite(std::span<const std::byte> payload, std::span<float> values) {
  const auto index = load_field<uint32_t>(&payload[kPayloadHeaderBytes]);
  values[index] += load_field<float>(&payload[kPayloadHeaderBytes + 4]);
}

}  // namespace gradbus
