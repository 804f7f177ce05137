// The 16 bytes that open every payload, little-endian, version 1; the codec's own bytes follow (see
// the header of each file in codecs/). Damage in transit is found by the frame's CRC32C
// (proto/frame.h); these fields and each codec's check() find a sender that writes nonsense.
//
//   offset  0  u8   codec    CodecId (proto/numbers.h)
//   offset  1  u8   version  1
//   offset  2  u8   flags    kPayloadNotFinite; other bits by codec, else 0
//   offset  3  u8   detail   by codec, else 0
//   offset  4  u32  count    elements of the partition
//   offset  8  u32  bytes    of the body that follows
//   offset 12  u32  entries  elements that were selected; count where all are sent
//
// kPayloadNotFinite: the partition held a NaN or Inf and nothing else is said about it. The body is
//   offset 16  u32  index    of the first such element
//   offset 20  u32  bits     of its f32 value
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>

#include "common/status.h"
#include "proto/numbers.h"

namespace gradbus {

inline constexpr uint8_t kPayloadVersion = 1;
inline constexpr uint8_t kPayloadNotFinite = 0x80;
inline constexpr size_t kPayloadHeaderBytes = 16;
inline constexpr size_t kNotFiniteBytes = kPayloadHeaderBytes + 8;
inline constexpr uint64_t kPartitionElementsMax = 1ull << 29;  // so that 4 bytes each fit `bytes`

struct PayloadHeader {
  uint8_t codec = 0;
  uint8_t version = kPayloadVersion;
  uint8_t flags = 0;
  uint8_t detail = 0;
  uint32_t count = 0;
  uint32_t bytes = 0;
  uint32_t entries = 0;
};
static_assert(sizeof(PayloadHeader) == kPayloadHeaderBytes, "payload format version 1");

// Fields of payloads are unaligned.
template <typename T>
T load_field(const std::byte* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <typename T>
void store_field(std::byte* to, T value) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::memcpy(to, &value, sizeof(T));
}

inline PayloadHeader payload_header(std::span<const std::byte> payload) {
  return load_field<PayloadHeader>(payload.data());
}
inline std::span<const std::byte> payload_body(std::span<const std::byte> payload) {
  return payload.subspan(kPayloadHeaderBytes);
}

// Returns kCorrupt, naming the field, for a wrong codec, version or count, or unless header and
// body fill `payload` exactly. Also for kPayloadNotFinite with any body other than the one above.
Status check_payload_header(std::span<const std::byte> payload, CodecId codec, size_t count);

// "payload of codec topk: field entries is 7, expected at most 3"
Status refuse_payload(CodecId codec, const char* field, uint64_t found, const char* expected);

// The payload of a partition whose element `index` is `value`, a NaN or Inf; returns
// kNotFiniteBytes.
size_t encode_not_finite(CodecId codec, size_t count, size_t index, float value,
                         std::span<std::byte> payload);
inline bool is_not_finite(std::span<const std::byte> payload) {
  return (payload_header(payload).flags & kPayloadNotFinite) != 0;
}
// values[index] += value of such a payload, so it is visible whatever the old value was.
void accumulate_not_finite(std::span<const std::byte> payload, std::span<float> values);

}  // namespace gradbus
