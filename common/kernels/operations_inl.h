// The operations on lanes: one type per reduce operation, and the division of integers. Included
// once per SIMD target by foreach_target.h, hence the toggled guard.

#if defined(GRADBUS_COMMON_KERNELS_OPERATIONS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMMON_KERNELS_OPERATIONS_INL_H_
#undef GRADBUS_COMMON_KERNELS_OPERATIONS_INL_H_
#else
#define GRADBUS_COMMON_KERNELS_OPERATIONS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "common/kernels/elements_inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

struct Sum {
  static constexpr bool kOneNan = false;  // whether NaN results become the plain quiet NaN
  template <typename Tag, typename Vec>
  static HWY_INLINE Vec combine(Tag, Vec a, Vec b) {
    return hn::Add(a, b);
  }
};

// No processor multiplies vectors of bytes. Even and odd bytes are multiplied as 16 bits each. The
// lower half of such a product does not depend on the upper bits of its factors.
template <typename Tag>
HWY_INLINE hn::Vec<Tag> multiply_bytes(Tag tag, hn::Vec<Tag> a, hn::Vec<Tag> b) {
  const hn::Repartition<uint16_t, Tag> pairs;
  const auto a2 = hn::BitCast(pairs, a);
  const auto b2 = hn::BitCast(pairs, b);
  const auto even = hn::And(hn::Mul(a2, b2), hn::Set(pairs, 0xff));
  const auto odd = hn::ShiftLeft<8>(hn::Mul(hn::ShiftRight<8>(a2), hn::ShiftRight<8>(b2)));
  return hn::BitCast(tag, hn::Or(even, odd));
}

struct Product {
  static constexpr bool kOneNan = false;
  template <typename Tag, typename Vec>
  static HWY_INLINE Vec combine(Tag tag, Vec a, Vec b) {
    if constexpr (sizeof(hn::TFromD<Tag>) == 1) return multiply_bytes(tag, a, b);
    if constexpr (sizeof(hn::TFromD<Tag>) != 1) return hn::Mul(a, b);
  }
};

// Floats use comparisons only, because the minimum instructions of processors differ for NaN and
// -0. If neither value is less, the result is their bitwise or. For equal values that is the value
// itself or, for zeros of different sign, -0. If one value is NaN, the bitwise or is a NaN too.
struct Minimum {
  static constexpr bool kOneNan = true;
  template <typename Tag, typename Vec>
  static HWY_INLINE Vec combine(Tag, Vec a, Vec b) {
    if constexpr (hwy::IsFloat<hn::TFromD<Tag>>()) {
      const Vec neither = hn::Or(a, b);
      return hn::IfThenElse(hn::Lt(b, a), b, hn::IfThenElse(hn::Lt(a, b), a, neither));
    } else {
      return hn::Min(a, b);
    }
  }
};

// The same for the maximum. For zeros of different sign the result is +0: the signs are combined
// with a bitwise and.
struct Maximum {
  static constexpr bool kOneNan = true;
  template <typename Tag, typename Vec>
  static HWY_INLINE Vec combine(Tag tag, Vec a, Vec b) {
    if constexpr (hwy::IsFloat<hn::TFromD<Tag>>()) {
      const Vec neither = hn::Or(hn::AndNot(hn::SignBit(tag), hn::Or(a, b)), hn::And(a, b));
      return hn::IfThenElse(hn::Lt(a, b), b, hn::IfThenElse(hn::Lt(b, a), a, neither));
    } else {
      return hn::Max(a, b);
    }
  }
};

struct BitAnd {
  static constexpr bool kOneNan = false;
  template <typename Tag, typename Vec>
  static HWY_INLINE Vec combine(Tag, Vec a, Vec b) {
    return hn::And(a, b);
  }
};

struct BitOr {
  static constexpr bool kOneNan = false;
  template <typename Tag, typename Vec>
  static HWY_INLINE Vec combine(Tag, Vec a, Vec b) {
    return hn::Or(a, b);
  }
};

// ---- integers divided, truncating toward zero -------------------------------------------------

// Divides the bytes of a block in place. Highway has no integer division, so these functions divide
// floats that are wide enough. A quotient n / d that is no integer is at least 1 / d below the next
// integer, which is the fraction 1 / n of it. Rounding moves it by a smaller fraction: 2^-53 for 32
// bits in f64, 2^-24 for 8 and 16 bits in f32. f32 rounds a divisor above 2^24, but the quotient is
// 0 then.
using Divide = void (*)(std::byte* block, size_t bytes, uint32_t divisor);

HWY_NOINLINE void divide_i32(std::byte* block, size_t bytes, uint32_t divisor) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<int32_t, decltype(wide)> tag;
  const auto divisors = hn::Set(wide, static_cast<double>(divisor));
  for (std::byte* at = block; at < block + bytes; at += sizeof(int32_t) * hn::MaxLanes(tag)) {
    const auto lanes = hn::PromoteTo(wide, load_lanes(tag, at));
    store_lanes(tag, hn::DemoteTo(tag, hn::Div(lanes, divisors)), at);
  }
}

// Highway converts signed lanes only, so the sign bit is flipped before and after. No divisor is 1,
// so every quotient fits an i32.
HWY_NOINLINE void divide_u32(std::byte* block, size_t bytes, uint32_t divisor) {
  const hn::ScalableTag<double> wide;
  const hn::Rebind<int32_t, decltype(wide)> tag;
  const auto divisors = hn::Set(wide, static_cast<double>(divisor));
  for (std::byte* at = block; at < block + bytes; at += sizeof(uint32_t) * hn::MaxLanes(tag)) {
    const auto turned = hn::Xor(load_lanes(tag, at), hn::Set(tag, INT32_MIN));
    const auto lanes = hn::Add(hn::PromoteTo(wide, turned), hn::Set(wide, 0x1p31));
    store_lanes(tag, hn::DemoteTo(tag, hn::Div(lanes, divisors)), at);
  }
}

// Integers of 8 and 16 bits.
template <typename Short>
HWY_NOINLINE void divide_short(std::byte* block, size_t bytes, uint32_t divisor) {
  const hn::ScalableTag<float> wide;
  const hn::RebindToSigned<decltype(wide)> whole;
  const hn::Rebind<Short, decltype(wide)> tag;
  const auto divisors = hn::Set(wide, static_cast<float>(divisor));
  for (std::byte* at = block; at < block + bytes; at += sizeof(Short) * hn::MaxLanes(tag)) {
    const auto lanes = hn::ConvertTo(wide, hn::PromoteTo(whole, load_lanes(tag, at)));
    const auto quotients = hn::ConvertTo(whole, hn::Div(lanes, divisors));
    store_lanes(tag, hn::DemoteTo(tag, quotients), at);
  }
}

// No float holds every 64-bit integer, so this divides one element at a time.
template <typename Longest>
HWY_NOINLINE void divide_longest(std::byte* block, size_t bytes, uint32_t divisor) {
  for (size_t at = 0; at < bytes; at += sizeof(Longest)) {
    Longest lane;
    __builtin_memcpy(&lane, block + at, sizeof(lane));
    lane /= Longest{divisor};
    __builtin_memcpy(block + at, &lane, sizeof(lane));
  }
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
