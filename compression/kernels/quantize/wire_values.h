// Converts f32 values to and from the type in which they are sent. Each is rounded once, as in
// common/kernels/half.h (to nearest even; too large for fp16 becomes Inf). Payload bytes need no
// alignment. Any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gradbus {

// On the wire: bits 2 and 3 of the flags of a sparse payload.
enum class WireType : uint8_t { kF32 = 0, kFp16 = 1, kBf16 = 2 };

constexpr size_t wire_type_bytes(WireType type) { return type == WireType::kF32 ? 4 : 2; }
// Parses the option "values": f32, fp16, bf16.
constexpr WireType wire_type(std::string_view name) {
  return name == "fp16" ? WireType::kFp16 : name == "bf16" ? WireType::kBf16 : WireType::kF32;
}

void store_wire_values(WireType type, const float* from, size_t count, std::byte* to);
// to[i] = scale * the i-th value
void load_wire_values(WireType type, const std::byte* from, size_t count, float scale, float* to);

void store_wire_values_scalar(WireType type, const float* from, size_t count, std::byte* to);
void load_wire_values_scalar(WireType type, const std::byte* from, size_t count, float scale,
                             float* to);

}  // namespace gradbus
