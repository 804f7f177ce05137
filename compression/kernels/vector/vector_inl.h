// The common parts of the codec kernels for one SIMD target. Included once per target by
// foreach_target.h, hence the toggled guard.
//
// GRADBUS_WITHOUT_VECTORS is set for targets without vectors, and for targets whose vector length
// is not known to the compiler. Their kernels are the scalar forms.

#if defined(GRADBUS_COMPRESSION_KERNELS_VECTOR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMPRESSION_KERNELS_VECTOR_INL_H_
#undef GRADBUS_COMPRESSION_KERNELS_VECTOR_INL_H_
#else
#define GRADBUS_COMPRESSION_KERNELS_VECTOR_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "compression/kernels/vector/dither.h"
#include "hwy/highway.h"

#undef GRADBUS_WITHOUT_VECTORS
#if HWY_TARGET == HWY_SCALAR || HWY_TARGET == HWY_EMU128 || HWY_HAVE_SCALABLE
#define GRADBUS_WITHOUT_VECTORS 1
#else
#define GRADBUS_WITHOUT_VECTORS 0
#endif

#if !GRADBUS_WITHOUT_VECTORS

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::CappedTag<float, kDitherGroup / 2>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using U8 = hn::Rebind<uint8_t, F32>;  // as many lanes as F32, a quarter of the bytes
using F32Vec = hn::Vec<F32>;
using U32Vec = hn::Vec<U32>;
inline constexpr size_t kLanes = hn::MaxLanes(F32());
static_assert((kDitherGroup / 2) % kLanes == 0, "half a group is whole vectors");

// mix_u32() without its last step, bits ^ (bits >> 16). Callers that use only some of the bits can
// shorten that step.
HWY_API U32Vec mix_most(U32Vec bits) {
  const U32 d;
  bits = hn::Xor(bits, hn::ShiftRight<16>(bits));
  bits = hn::Mul(bits, hn::Set(d, 0x85ebca6b));
  bits = hn::Xor(bits, hn::ShiftRight<13>(bits));
  return hn::Mul(bits, hn::Set(d, 0xc2b2ae35));
}

}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // !GRADBUS_WITHOUT_VECTORS
#endif  // toggled guard
