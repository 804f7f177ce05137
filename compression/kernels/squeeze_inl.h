// The lanes of a vector that a mask selects, side by side, for one SIMD target. Included once per
// target, as vector_inl.h is.
//
// AVX-512 has an instruction for it. Elsewhere Highway's Compress() looks a permutation up in a
// table that it declares in the function, and GCC 12 copies that table, 1 KiB, to the stack at
// every call: top-k took 11 times as long on AVX2. So the table is ours.

#if defined(GRADBUS_COMPRESSION_KERNELS_SQUEEZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMPRESSION_KERNELS_SQUEEZE_INL_H_
#undef GRADBUS_COMPRESSION_KERNELS_SQUEEZE_INL_H_
#else
#define GRADBUS_COMPRESSION_KERNELS_SQUEEZE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "compression/kernels/bit_places.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {

#if !HWY_HAVE_SCALABLE
// Made of a mask once, for all vectors that it selects of; 32 bits a lane, 16 lanes at most.
template <class D>
class Squeeze {
 public:
  HWY_INLINE Squeeze(D, uint64_t bits) : found_(hwy::PopCount(bits)) {
#if HWY_TARGET <= HWY_AVX3
    uint8_t bytes[8];  // as many as LoadMaskBits() asks for
    std::memcpy(bytes, &bits, sizeof(bytes));
    how_ = hwy::HWY_NAMESPACE::LoadMaskBits(Index(), bytes);
#else
    const hwy::HWY_NAMESPACE::Rebind<uint8_t, D> bytes;
    const uint8_t* const places = kBitPlaces[bits].data();
    how_ = hwy::HWY_NAMESPACE::PromoteTo(Index(), hwy::HWY_NAMESPACE::LoadU(bytes, places));
#endif
  }

  // The selected lanes of v come first, in order; what follows them is rubbish.
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
