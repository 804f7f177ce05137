// Loads vectors of f16 and bf16 as f32 and stores them with one rounding, like
// common/kernels/half.h. Included once per SIMD target by foreach_target.h, hence the toggled
// guard.

#if defined(GRADBUS_COMMON_KERNELS_HALF_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMMON_KERNELS_HALF_INL_H_
#undef GRADBUS_COMMON_KERNELS_HALF_INL_H_
#else
#define GRADBUS_COMMON_KERNELS_HALF_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U16 = hn::Rebind<uint16_t, F32>;  // as many lanes as F32, half the bytes
using F32Vec = hn::Vec<F32>;
using U32Vec = hn::Vec<U32>;
using U16Vec = hn::Vec<U16>;

// Loads bytes, because rank buffers guarantee no alignment and a typed pointer would imply one.
HWY_API U16Vec load_halves(const std::byte* from) {
  const hn::Repartition<uint8_t, U16> bytes;
  return hn::BitCast(U16(), hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(from)));
}

HWY_API void store_halves(U16Vec halves, std::byte* to) {
  const hn::Repartition<uint8_t, U16> bytes;
  hn::StoreU(hn::BitCast(bytes, halves), bytes, reinterpret_cast<uint8_t*>(to));
}

HWY_API F32Vec widen_bf16(U16Vec halves) {
  return hn::BitCast(F32(), hn::ShiftLeft<16>(hn::PromoteTo(U32(), halves)));
}

// Adds 0x7fff, and 1 more when the kept part is odd. That carries exactly when rounding to nearest
// even goes up. VCVTNEPS2BF16 is not used because it flushes subnormals. The input must be a result
// of arithmetic on widened bf16. NaNs are then quiet with the low 16 bits clear, so no carry can
// turn one into a number.
HWY_API U16Vec narrow_bf16_sum(F32Vec sums) {
  const U32 d;
  const U32Vec bits = hn::BitCast(d, sums);
  const U32Vec odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1));
  const U32Vec rounded = hn::Add(hn::Add(bits, hn::Set(d, 0x7fff)), odd);
  return hn::TruncateTo(U16(), hn::ShiftRight<16>(rounded));
}

#if HWY_TARGET == HWY_SSE4  // no F16C: uses integer arithmetic and exact f32 operations

// The shifted bits are the value times 2^-112, also for subnormals. So one exact multiplication
// corrects the exponent. Inf and NaN (exponent 31) need exponent 255. A signalling NaN stays one
// until the first arithmetic on it; half.h makes it quiet at once.
HWY_API F32Vec widen_f16(U16Vec halves) {
  const F32 d;
  const U32 du;
  const U32Vec wide = hn::PromoteTo(du, halves);
  const U32Vec magnitude = hn::And(wide, hn::Set(du, 0x7fff));
  const U32Vec sign = hn::ShiftLeft<16>(hn::Xor(wide, magnitude));
  const U32Vec shifted = hn::ShiftLeft<13>(magnitude);
  const U32Vec finite = hn::BitCast(du, hn::Mul(hn::BitCast(d, shifted), hn::Set(d, 0x1p112f)));
  const U32Vec special = hn::Or(shifted, hn::Set(du, 0x7f800000));
  const auto above = hn::Gt(hn::BitCast(I32(), magnitude), hn::Set(I32(), 0x7bff));
  const U32Vec wide_magnitude = hn::IfThenElse(hn::RebindMask(du, above), special, finite);
  return hn::BitCast(d, hn::Or(wide_magnitude, sign));
}

// The f16 magnitude bits for f32 magnitude bits from 2^-14 up. From 65520 up the result is Inf.
HWY_API U32Vec narrow_f16_normal(U32Vec magnitude) {
  const U32 d;
  const U32Vec odd = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 1));
  const U32Vec rebased = hn::Sub(magnitude, hn::Set(d, (112u << 23) - 0xfff));
  return hn::Min(hn::ShiftRight<13>(hn::Add(rebased, odd)), hn::Set(d, 0x7c00));
}

// The same below 2^-14. At 0.5 the unit of f32 is 2^-24, which is the unit of f16 subnormals. So
// adding 0.5 rounds.
HWY_API U32Vec narrow_f16_subnormal(U32Vec magnitude) {
  const F32 d;
  const F32Vec half = hn::Set(d, 0.5f);
  const F32Vec rounded = hn::Add(hn::BitCast(d, magnitude), half);
  return hn::Sub(hn::BitCast(U32(), rounded), hn::BitCast(U32(), half));
}

HWY_API U16Vec narrow_f16(F32Vec values) {
  const U32 d;
  const U32Vec bits = hn::BitCast(d, values);
  const U32Vec magnitude = hn::And(bits, hn::Set(d, 0x7fffffff));
  const U32Vec sign = hn::ShiftRight<16>(hn::Xor(bits, magnitude));
  const U32Vec payload = hn::And(hn::ShiftRight<13>(magnitude), hn::Set(d, 0x3ff));
  const U32Vec nan = hn::Or(payload, hn::Set(d, 0x7e00));
  const auto small = hn::Gt(hn::Set(I32(), 113 << 23), hn::BitCast(I32(), magnitude));
  const U32Vec finite = hn::IfThenElse(hn::RebindMask(d, small), narrow_f16_subnormal(magnitude),
                                       narrow_f16_normal(magnitude));
  const auto is_nan = hn::RebindMask(d, hn::IsNaN(values));
  return hn::TruncateTo(U16(), hn::Or(hn::IfThenElse(is_nan, nan, finite), sign));
}

#else  // F16C has an instruction for it

HWY_API F32Vec widen_f16(U16Vec halves) {
  const hn::Rebind<hwy::float16_t, F32> d;
  return hn::PromoteTo(F32(), hn::BitCast(d, halves));
}

HWY_API U16Vec narrow_f16(F32Vec values) {
  const hn::Rebind<hwy::float16_t, F32> d;
  return hn::BitCast(U16(), hn::DemoteTo(d, values));
}

#endif

}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
