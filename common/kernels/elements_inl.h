// Element types of the kernels: the lanes in which they are combined, and how vectors are loaded
// from and stored to unaligned bytes. Also a block of four such vectors in registers. Included once
// per SIMD target by foreach_target.h, hence the toggled guard.

#if defined(GRADBUS_COMMON_KERNELS_ELEMENTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMMON_KERNELS_ELEMENTS_INL_H_
#undef GRADBUS_COMMON_KERNELS_ELEMENTS_INL_H_
#else
#define GRADBUS_COMMON_KERNELS_ELEMENTS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include "common/kernels/half_inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {

// Loads bytes, because rank buffers guarantee no alignment and a typed pointer would imply one.
template <typename Tag>
HWY_INLINE hn::Vec<Tag> load_lanes(Tag tag, const std::byte* from) {
  const hn::Repartition<uint8_t, Tag> bytes;
  return hn::BitCast(tag, hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(from)));
}

template <typename Tag>
HWY_INLINE void store_lanes(Tag, hn::Vec<Tag> lanes, std::byte* to) {
  const hn::Repartition<uint8_t, Tag> bytes;
  hn::StoreU(hn::BitCast(bytes, lanes), bytes, reinterpret_cast<uint8_t*>(to));
}

template <typename T>
struct Integer {
  using Lane = T;
  using Tag = hn::ScalableTag<T>;
  static constexpr bool kFloat = false;
  static constexpr size_t kBytes = sizeof(T);
  static HWY_INLINE hn::Vec<Tag> load(const std::byte* from) { return load_lanes(Tag(), from); }
  static HWY_INLINE void store(hn::Vec<Tag> lanes, std::byte* to) { store_lanes(Tag(), lanes, to); }
};

template <typename T>
struct Float : Integer<T> {
  static constexpr bool kFloat = true;
};

struct F16 : Float<float> {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE F32Vec load(const std::byte* from) { return widen_f16(load_halves(from)); }
  static HWY_INLINE void store(F32Vec lanes, std::byte* to) { store_halves(narrow_f16(lanes), to); }
};

struct BF16 : Float<float> {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE F32Vec load(const std::byte* from) { return widen_bf16(load_halves(from)); }
  static HWY_INLINE void store(F32Vec lanes, std::byte* to) {
    store_halves(narrow_bf16_sum(lanes), to);
  }
};

template <typename Element>
struct Block {
  using Tag = typename Element::Tag;
  using Lane = typename Element::Lane;
  using Vec = hn::Vec<Tag>;
  static constexpr size_t kVectors = 4;
  static constexpr size_t kElements = kVectors * HWY_LANES(Lane);
  static constexpr size_t kBytes = kElements * Element::kBytes;  // of one source or target
  static constexpr size_t kStep = kBytes / kVectors;

  HWY_INLINE Block() {}  // a generated constructor is not compiled for this target (Arm)
  HWY_INLINE void load(const std::byte* from) {
    v0 = Element::load(from);
    v1 = Element::load(from + kStep);
    v2 = Element::load(from + 2 * kStep);
    v3 = Element::load(from + 3 * kStep);
  }
  template <typename Operation>
  HWY_INLINE void combine(const Block& next) {
    v0 = Operation::combine(Tag(), v0, next.v0);
    v1 = Operation::combine(Tag(), v1, next.v1);
    v2 = Operation::combine(Tag(), v2, next.v2);
    v3 = Operation::combine(Tag(), v3, next.v3);
  }
  HWY_INLINE void scale(Vec factors) {
    v0 = hn::Mul(v0, factors);
    v1 = hn::Mul(v1, factors);
    v2 = hn::Mul(v2, factors);
    v3 = hn::Mul(v3, factors);
  }
  HWY_INLINE void one_nan() {
    const Vec nan = hn::Set(Tag(), __builtin_nanf(""));
    v0 = hn::IfThenElse(hn::IsNaN(v0), nan, v0);
    v1 = hn::IfThenElse(hn::IsNaN(v1), nan, v1);
    v2 = hn::IfThenElse(hn::IsNaN(v2), nan, v2);
    v3 = hn::IfThenElse(hn::IsNaN(v3), nan, v3);
  }
  HWY_INLINE void store(std::byte* to) const {
    Element::store(v0, to);
    Element::store(v1, to + kStep);
    Element::store(v2, to + 2 * kStep);
    Element::store(v3, to + 3 * kStep);
  }

  Vec v0, v1, v2, v3;
};

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
