// The definition of reduce(): one element at a time, no SIMD. Also the fallback for processors that
// none of the SIMD targets fits. Pure, any thread.
#include <cstring>
#include <type_traits>

#include "common/check.h"
#include "common/kernels/half.h"
#include "common/kernels/reduce.h"

namespace gradbus {
namespace {

using Sources = std::span<const std::byte* const>;
using Targets = std::span<std::byte* const>;

// Element types: how one is stored, what it is summed in, and how the sum is divided.
template <typename T>
struct Float {
  using Stored = T;
  using Sum = T;
  static Sum widen(Stored stored) { return stored; }
  static Stored narrow(Sum sum) { return sum; }
  static Sum divide(Sum sum, uint32_t divisor) {
    return sum * (Sum{1} / static_cast<Sum>(divisor));
  }
};

template <typename T>
struct Integer {
  using Stored = T;
  using Sum = std::make_unsigned_t<T>;  // wraps without undefined behaviour
  static Sum widen(Stored stored) { return static_cast<Sum>(stored); }
  static Stored narrow(Sum sum) { return static_cast<Stored>(sum); }
  static Sum divide(Sum sum, uint32_t divisor) {
    return static_cast<Sum>(int64_t{static_cast<Stored>(sum)} / int64_t{divisor});
  }
};

template <float (*kWiden)(uint16_t), uint16_t (*kNarrow)(float)>
struct Half : Float<float> {
  using Stored = uint16_t;
  static Sum widen(Stored stored) { return kWiden(stored); }
  static Stored narrow(Sum sum) { return kNarrow(sum); }
};

template <typename Element>
typename Element::Stored reduce_one(Sources sources, size_t offset, uint32_t divisor) {
  typename Element::Sum sum{};
  for (size_t s = 0; s < sources.size(); ++s) {
    typename Element::Stored stored;
    std::memcpy(&stored, sources[s] + offset, sizeof(stored));
    // The first source starts the sum, so that -0 stays -0.
    sum = s == 0 ? Element::widen(stored)
                 : static_cast<typename Element::Sum>(sum + Element::widen(stored));
  }
  return Element::narrow(Element::divide(sum, divisor));
}

template <typename Element>
void reduce_all(Sources sources, Targets targets, size_t count, uint32_t divisor) {
  for (size_t i = 0; i < count; ++i) {
    const size_t offset = i * sizeof(typename Element::Stored);
    const auto result = reduce_one<Element>(sources, offset, divisor);
    for (std::byte* target : targets) std::memcpy(target + offset, &result, sizeof(result));
  }
}

}  // namespace

void reduce_scalar(DType dtype, Sources sources, Targets targets, size_t count, uint32_t divisor) {
  GRADBUS_CHECK(!sources.empty() && !targets.empty() && divisor > 0);
  switch (dtype) {
    case DType::kF32: return reduce_all<Float<float>>(sources, targets, count, divisor);
    case DType::kF64: return reduce_all<Float<double>>(sources, targets, count, divisor);
    case DType::kF16:
      return reduce_all<Half<f32_from_f16, f16_from_f32>>(sources, targets, count, divisor);
    case DType::kBF16:
      return reduce_all<Half<f32_from_bf16, bf16_from_f32>>(sources, targets, count, divisor);
    case DType::kI32: return reduce_all<Integer<int32_t>>(sources, targets, count, divisor);
    case DType::kI64: return reduce_all<Integer<int64_t>>(sources, targets, count, divisor);
    case DType::kU8: return reduce_all<Integer<uint8_t>>(sources, targets, count, divisor);
  }
  GRADBUS_CHECK(is_dtype(static_cast<uint32_t>(dtype)));
}

}  // namespace gradbus
