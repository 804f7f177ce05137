// Moves the lanes that a mask selects to the front of a vector, for one SIMD target. Included once
// per target, like vector_inl.h.
//
// AVX-512 has an instruction for it. Elsewhere Highway's Compress() reads a permutation from a
// table in the function. GCC 12 copies that table, 1 KiB, to the stack at every call: top-k took 11
// times as long on AVX2. So this file has its own table.

#if defined(GRADBUS_COMPRESSION_KERNELS_SQUEEZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMPRESSION_KERNELS_SQUEEZE_INL_H_
#undef GRADBUS_COMPRESSION_KERNELS_SQUEEZE_INL_H_
#else
#define GRADBUS_COMPRESSION_KERNELS_SQUEEZE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compression/kernels/select/bit_places.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {

#if !HWY_HAVE_SCALABLE
// Made from a mask once, for all vectors that it selects from. 32 bits a lane, at most 16 lanes.
template <class D>
class Squeeze {
 public:
  HWY_INLINE Squeeze(D, uint64_t bits) : found_(hwy::PopCount(bits)) {
#if HWY_TARGET <= HWY_AVX3
    uint8_t bytes[8];  // as many as LoadMaskBits() requires
    std::memcpy(bytes, &bits, sizeof(bytes));
    how_ = hwy::HWY_NAMESPACE::LoadMaskBits(Index(), bytes);
#else
    const hwy::HWY_NAMESPACE::Rebind<uint8_t, D> bytes;
    const uint8_t* const places = kBitPlaces[bits].data();
    how_ = hwy::HWY_NAMESPACE::PromoteTo(Index(), hwy::HWY_NAMESPACE::LoadU(bytes, places));
#endif
  }

  // The selected lanes of v come first, in order. The lanes behind them are undefined.
  template <class V>
  HWY_INLINE V of(V v) const {
    const hwy::HWY_NAMESPACE::DFromV<V> d;
#if HWY_TARGET <= HWY_AVX3
    return hwy::HWY_NAMESPACE::Compress(v, hwy::HWY_NAMESPACE::RebindMask(d, how_));
#else
    return hwy::HWY_NAMESPACE::TableLookupLanes(v, hwy::HWY_NAMESPACE::IndicesFromVec(d, how_));
#endif
  }
  HWY_INLINE size_t found() const { return found_; }

 private:
  using Index = hwy::HWY_NAMESPACE::RebindToUnsigned<D>;
#if HWY_TARGET <= HWY_AVX3
  hwy::HWY_NAMESPACE::Mask<Index> how_;
#else
  static_assert(hwy::HWY_NAMESPACE::MaxLanes(Index()) <= 8);
  hwy::HWY_NAMESPACE::Vec<Index> how_;
#endif
  size_t found_;
};
#endif  // !HWY_HAVE_SCALABLE

}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
