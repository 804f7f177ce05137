// The reduction of one element, by type: how it is stored, in which type it is combined, and how
// the factors and the divisor apply. It is the definition for the scalar form (reduce_scalar.cc).
// Devices compile it unchanged (compression/cuda/kernels/reduce_work.h), so it is constexpr and
// uses no library.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "common/kernels/half.h"
#include "common/kernels/reduce.h"
#include "common/reduce_op.h"

namespace gradbus {

template <typename T>
struct FloatElement {
  using Stored = T;
  using Wide = T;
  // The factors and the divisor that all elements of a reduction share.
  struct Factors {
    Wide prescale;
    Wide postscale;
  };

  static constexpr Wide widen(Stored stored) { return stored; }
  static constexpr Stored narrow(Wide wide) { return wide; }
  static constexpr Factors factors(const Reduction& reduction) {
    return {static_cast<Wide>(reduction.prescale),
            static_cast<Wide>(reduction.postscale / reduction.divisor)};
  }
  static constexpr Wide enter(const Factors& factors, Wide value) {
    return multiply(value, factors.prescale);
  }
  static constexpr Wide combine(ReduceOp op, Wide a, Wide b) {
    switch (op) {
      case ReduceOp::kProduct: return a * b;
      case ReduceOp::kMin: return minimum(a, b);
      case ReduceOp::kMax: return maximum(a, b);
      default: return a + b;
    }
  }
  static constexpr Wide finish(const Factors& factors, ReduceOp op, Wide value) {
    const Wide result = multiply(value, factors.postscale);
    const bool ordered = op == ReduceOp::kMin || op == ReduceOp::kMax;
    return ordered && is_nan(result) ? std::numeric_limits<Wide>::quiet_NaN() : result;
  }

 private:
  using Bits = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;

  static constexpr bool is_nan(T value) { return value != value; }
  static constexpr bool is_below_zero(T value) {  // also true for -0
    return std::bit_cast<Bits>(value) >> (8 * sizeof(T) - 1) != 0;
  }
  // IEEE 754-2019 minimum and maximum. finish() makes all NaNs the same, so any NaN will do.
  static constexpr T minimum(T a, T b) {
    if (is_nan(a) || a < b) return a;
    if (is_nan(b) || b < a) return b;
    return is_below_zero(a) ? a : b;
  }
  static constexpr T maximum(T a, T b) {
    if (is_nan(a) || a > b) return a;
    if (is_nan(b) || b > a) return b;
    return is_below_zero(a) ? b : a;
  }
  static constexpr Wide multiply(Wide value, Wide factor) {
    return factor == 1 ? value : value * factor;
  }
};

template <typename T>
struct IntegerElement {
  using Stored = T;
  using Wide = std::make_unsigned_t<T>;  // wraps without undefined behaviour
  using Longest = std::conditional_t<std::is_signed_v<T>, int64_t, uint64_t>;
  struct Factors {
    Longest divisor;
  };

  static constexpr Wide widen(Stored stored) { return static_cast<Wide>(stored); }
  static constexpr Stored narrow(Wide wide) { return static_cast<Stored>(wide); }
  static constexpr Factors factors(const Reduction& reduction) { return {reduction.divisor}; }
  static constexpr Wide enter(const Factors&, Wide value) { return value; }
  static constexpr Wide combine(ReduceOp op, Wide a, Wide b) {
    switch (op) {
      case ReduceOp::kProduct: return static_cast<Wide>(uint64_t{a} * b);
      case ReduceOp::kMin: return narrow(a) < narrow(b) ? a : b;
      case ReduceOp::kMax: return narrow(a) > narrow(b) ? a : b;
      case ReduceOp::kBitAnd: return a & b;
      case ReduceOp::kBitOr: return a | b;
      default: return static_cast<Wide>(a + b);
    }
  }
  static constexpr Wide finish(const Factors& factors, ReduceOp, Wide value) {
    return static_cast<Wide>(Longest{narrow(value)} / factors.divisor);
  }
};

struct F16Element : FloatElement<float> {
  using Stored = uint16_t;
  static constexpr Wide widen(Stored stored) { return f32_from_f16(stored); }
  static constexpr Stored narrow(Wide wide) { return f16_from_f32(wide); }
};

struct Bf16Element : FloatElement<float> {
  using Stored = uint16_t;
  static constexpr Wide widen(Stored stored) { return f32_from_bf16(stored); }
  static constexpr Stored narrow(Wide wide) { return bf16_from_f32(wide); }
};

// Calls use(Element()) with the element type of `dtype`.
template <class Use>
constexpr void with_element(DType dtype, const Use& use) {
  switch (dtype) {
    case DType::kF32: return use(FloatElement<float>());
    case DType::kF64: return use(FloatElement<double>());
    case DType::kF16: return use(F16Element());
    case DType::kBF16: return use(Bf16Element());
    case DType::kI32: return use(IntegerElement<int32_t>());
    case DType::kI64: return use(IntegerElement<int64_t>());
    case DType::kI8: return use(IntegerElement<int8_t>());
    case DType::kI16: return use(IntegerElement<int16_t>());
    case DType::kU16: return use(IntegerElement<uint16_t>());
    case DType::kU32: return use(IntegerElement<uint32_t>());
    case DType::kU64: return use(IntegerElement<uint64_t>());
    case DType::kU8:
    case DType::kBool: return use(IntegerElement<uint8_t>());
  }
}

}  // namespace gradbus
