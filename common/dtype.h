// Element types of tensors. Numbers cross process and machine boundaries: append-only.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace gradbus {

enum class DType : uint8_t {
  kF32 = 1,
  kF64 = 2,
  kF16 = 3,
  kBF16 = 4,
  kI32 = 5,
  kI64 = 6,
  kU8 = 7,
  kI8 = 8,
  kBool = 9,  // one byte, 0 or 1
  kI16 = 10,
  kU16 = 11,
  kU32 = 12,
  kU64 = 13,
};

constexpr uint32_t kDTypeLast = 13;

// Bytes of one element; 0 for a number that is not a DType.
constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::kF32:
    case DType::kI32:
    case DType::kU32: return 4;
    case DType::kF64:
    case DType::kI64:
    case DType::kU64: return 8;
    case DType::kF16:
    case DType::kBF16:
    case DType::kI16:
    case DType::kU16: return 2;
    case DType::kU8:
    case DType::kI8:
    case DType::kBool: return 1;
  }
  return 0;
}

constexpr bool is_dtype(uint32_t number) { return number >= 1 && number <= kDTypeLast; }

constexpr bool is_float(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF64 || dtype == DType::kF16 ||
         dtype == DType::kBF16;
}

// "f32"; "?" for an unknown number.
std::string_view dtype_name(DType dtype);

}  // namespace gradbus
