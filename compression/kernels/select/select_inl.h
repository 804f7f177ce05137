// The common parts of select.cc and collect.cc for one SIMD target. Included once per target, like
// vector_inl.h.

#if defined(GRADBUS_COMPRESSION_KERNELS_SELECT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMPRESSION_KERNELS_SELECT_INL_H_
#undef GRADBUS_COMPRESSION_KERNELS_SELECT_INL_H_
#else
#define GRADBUS_COMPRESSION_KERNELS_SELECT_INL_H_
#endif

#include <cstring>
#include <type_traits>

#include "compression/kernels/select/select.h"
#include "compression/kernels/select/squeeze_inl.h"
#include "compression/kernels/vector/prefetch.h"
#include "hwy/highway.h"

// Vectors without a size at compile time.
#undef GRADBUS_SELECT_SCALAR
#if HWY_TARGET & (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
#define GRADBUS_SELECT_SCALAR 1
#else
#define GRADBUS_SELECT_SCALAR 0
#endif

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;

#if !GRADBUS_SELECT_SCALAR
constexpr size_t kLanes = hn::MaxLanes(F32());
using Bits = std::conditional_t<(kLanes > 8), uint16_t, uint8_t>;
static_assert(kLanes <= 16);
constexpr size_t kAhead = 1024;  // prefetches this many elements ahead

HWY_API uint64_t ToBits(hn::Mask<I32> mask) {
  uint8_t bytes[8];  // the minimum that StoreMaskBits requires
  hn::StoreMaskBits(I32(), mask, bytes);
  Bits bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

HWY_API void PrefetchWord(const float* word) {
  for (size_t i = 0; i < 64; i += 16) gradbus::prefetch(word + i);
}

// ---- v from a gradient, from something kept, or from both

struct LoadGradient {
  static constexpr bool kKeeps = false;
  // The processor prefetches a single stream itself.
  static HWY_INLINE void fetch(const SelectBlock&, size_t) {}
  static HWY_INLINE hn::Vec<F32> load(const SelectBlock& block, size_t i) {
    return hn::LoadU(F32(), block.gradient + i);
  }
};
struct LoadKept {
  static constexpr bool kKeeps = true;
  static HWY_INLINE void fetch(const SelectBlock& block, size_t i) { PrefetchWord(block.kept + i); }
  static HWY_INLINE hn::Vec<F32> load(const SelectBlock& block, size_t i) {
    const F32 d;
    return hn::Add(hn::Zero(d), hn::Mul(hn::Set(d, block.decay), hn::LoadU(d, block.kept + i)));
  }
};
struct LoadBoth {
  static constexpr bool kKeeps = true;
  static HWY_INLINE void fetch(const SelectBlock& block, size_t i) {
    PrefetchWord(block.kept + i);
    PrefetchWord(block.gradient + i);
  }
  static HWY_INLINE hn::Vec<F32> load(const SelectBlock& block, size_t i) {
    const F32 d;
    const auto kept = hn::Mul(hn::Set(d, block.decay), hn::LoadU(d, block.kept + i));
    return hn::Add(hn::LoadU(d, block.gradient + i), kept);
  }
};
#endif  // !GRADBUS_SELECT_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
