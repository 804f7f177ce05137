// The definition of reduce(): one element at a time, no SIMD. Also the fallback for processors that
// none of the SIMD targets fits. Pure, any thread.
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "common/check.h"
#include "common/kernels/half.h"
#include "common/kernels/reduce.h"

namespace gradbus {
namespace {

using Sources = std::span<const std::byte* const>;
using Targets = std::span<std::byte* const>;

// IEEE 754-2019 minimum and maximum; which NaN does not matter, finish() makes all of them one.
template <typename T>
T minimum(T a, T b) {
  if (std::isnan(a) || a < b) return a;
  if (std::isnan(b) || b < a) return b;
  return std::signbit(a) ? a : b;
}

template <typename T>
T maximum(T a, T b) {
  if (std::isnan(a) || a > b) return a;
  if (std::isnan(b) || b > a) return b;
  return std::signbit(a) ? b : a;
}

// Element types: how one is stored, what it is combined in, and what factors and divisor do to it.
template <typename T>
struct Float {
  using Stored = T;
  using Wide = T;
  static Wide widen(Stored stored) { return stored; }
  static Stored narrow(Wide wide) { return wide; }
  static Wide enter(const Reduction& reduction, Wide value) {
    return multiply(value, reduction.before);
  }
  static Wide combine(ReduceOp op, Wide a, Wide b) {
    switch (op) {
      case ReduceOp::kProduct: return a * b;
      case ReduceOp::kMin: return minimum(a, b);
      case ReduceOp::kMax: return maximum(a, b);
      default: return a + b;
    }
  }
  static Wide finish(const Reduction& reduction, Wide value) {
    const Wide result = multiply(value, reduction.after / reduction.divisor);
    const bool ordered = reduction.op == ReduceOp::kMin || reduction.op == ReduceOp::kMax;
    return ordered && std::isnan(result) ? std::numeric_limits<Wide>::quiet_NaN() : result;
  }

 private:
  static Wide multiply(Wide value, double factor) {
    const auto rounded = static_cast<Wide>(factor);
    return rounded == 1 ? value : value * rounded;
  }
};

template <typename T>
struct Integer {
  using Stored = T;
  using Wide = std::make_unsigned_t<T>;  // wraps without undefined behaviour
  static Wide widen(Stored stored) { return static_cast<Wide>(stored); }
  static Stored narrow(Wide wide) { return static_cast<Stored>(wide); }
  static Wide enter(const Reduction&, Wide value) { return value; }
  static Wide combine(ReduceOp op, Wide a, Wide b) {
    switch (op) {
      case ReduceOp::kProduct: return static_cast<Wide>(uint64_t{a} * b);
      case ReduceOp::kMin: return narrow(a) < narrow(b) ? a : b;
      case ReduceOp::kMax: return narrow(a) > narrow(b) ? a : b;
      case ReduceOp::kBitAnd: return a & b;
      case ReduceOp::kBitOr: return a | b;
      default: return static_cast<Wide>(a + b);
    }
  }
  static Wide finish(const Reduction& reduction, Wide value) {
    return static_cast<Wide>(int64_t{narrow(value)} / int64_t{reduction.divisor});
  }
};

template <float (*kWiden)(uint16_t), uint16_t (*kNarrow)(float)>
struct Half : Float<float> {
  using Stored = uint16_t;
  static Wide widen(Stored stored) { return kWiden(stored); }
  static Stored narrow(Wide wide) { return kNarrow(wide); }
};

template <typename Element>
typename Element::Stored reduce_one(const Reduction& reduction, Sources sources, size_t offset) {
  typename Element::Wide result{};
  for (size_t s = 0; s < sources.size(); ++s) {
    typename Element::Stored stored;
    std::memcpy(&stored, sources[s] + offset, sizeof(stored));
    const auto value = Element::enter(reduction, Element::widen(stored));
    // The first source starts the result, so that -0 stays -0.
    result = s == 0 ? value : Element::combine(reduction.op, result, value);
  }
  return Element::narrow(Element::finish(reduction, result));
}

template <typename Element>
void reduce_all(const Reduction& reduction, Sources sources, Targets targets, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const size_t offset = i * sizeof(typename Element::Stored);
    const auto result = reduce_one<Element>(reduction, sources, offset);
    for (std::byte* target : targets) std::memcpy(target + offset, &result, sizeof(result));
  }
}

}  // namespace

void reduce_scalar(DType dtype, const Reduction& reduction, Sources sources, Targets targets,
                   size_t count) {
  GRADBUS_CHECK(!sources.empty() && !targets.empty() && reduction.divisor > 0);
  using F16 = Half<f32_from_f16, f16_from_f32>;
  using BF16 = Half<f32_from_bf16, bf16_from_f32>;
  switch (dtype) {
    case DType::kF32: return reduce_all<Float<float>>(reduction, sources, targets, count);
    case DType::kF64: return reduce_all<Float<double>>(reduction, sources, targets, count);
    case DType::kF16: return reduce_all<F16>(reduction, sources, targets, count);
    case DType::kBF16: return reduce_all<BF16>(reduction, sources, targets, count);
    case DType::kI32: return reduce_all<Integer<int32_t>>(reduction, sources, targets, count);
    case DType::kI64: return reduce_all<Integer<int64_t>>(reduction, sources, targets, count);
    case DType::kI8: return reduce_all<Integer<int8_t>>(reduction, sources, targets, count);
    case DType::kU8:
    case DType::kBool: return reduce_all<Integer<uint8_t>>(reduction, sources, targets, count);
  }
  GRADBUS_CHECK(is_dtype(static_cast<uint32_t>(dtype)));
}

}  // namespace gradbus
