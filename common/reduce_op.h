// How values are combined. Numbers cross process and machine boundaries: append-only.
#pragma once

#include <cstdint>
#include <string_view>

#include "common/dtype.h"

namespace gradbus {

enum class ReduceOp : uint8_t {
  kNone = 0,  // collectives that only move bytes
  kSum = 1,
  kAverage = 2,  // sum / world size; integers truncate toward zero
  kMin = 3,      // floats: IEEE 754-2019 minimum (a NaN wins, -0 < +0)
  kMax = 4,      // floats: IEEE 754-2019 maximum
  kProduct = 5,
  kBitAnd = 6,
  kBitOr = 7,
  kAdasum = 8,  // Maleki et al. 2020, "Scaling distributed training with adaptive summation"
};

constexpr bool is_reduce_op(uint32_t number) { return number <= 8; }

// Floats have no bits to combine, truth values no sums, and Adasum needs scalar products.
constexpr bool op_fits_dtype(ReduceOp op, DType dtype) {
  switch (op) {
    case ReduceOp::kNone: return true;
    case ReduceOp::kSum:
    case ReduceOp::kAverage:
    case ReduceOp::kProduct: return dtype != DType::kBool;
    case ReduceOp::kMin:
    case ReduceOp::kMax: return true;
    case ReduceOp::kBitAnd:
    case ReduceOp::kBitOr: return !is_float(dtype);
    case ReduceOp::kAdasum: return is_float(dtype);
  }
  return false;
}

// "sum"; "?" for an unknown number.
std::string_view reduce_op_name(ReduceOp op);

}  // namespace gradbus
