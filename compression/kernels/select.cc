#include "compression/kernels/select.h"

#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/select.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());
using Bits = std::conditional_t<(kLanes > 8), uint16_t, uint8_t>;

#if HWY_TARGET & (HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// Vectors without a size at compile time.
void MagnitudeMasks(const float* values, size_t count, KeyRange keys, uint64_t* masks) {
  magnitude_masks_scalar(values, count, keys, masks);
}
#else
static_assert(kLanes <= 16);

// below < key <= last, a bit each. Keys are under 2^31, so signed comparison does, which every
// target has.
uint64_t InRange(hn::Vec<F32> values, hn::Vec<I32> below, hn::Vec<I32> last) {
  const auto key = hn::BitCast(I32(), hn::Abs(values));
  const auto mask = hn::AndNot(hn::Gt(key, last), hn::Gt(key, below));
  uint8_t bytes[8];  // the minimum that StoreMaskBits asks for
  hn::StoreMaskBits(I32(), mask, bytes);
  Bits bits;
  std::memcpy(&bits, bytes, sizeof(bits));
  return bits;
}

void MagnitudeMasks(const float* values, size_t count, KeyRange keys, uint64_t* masks) {
  const auto below = hn::Set(I32(), static_cast<int32_t>(keys.first - 1));
  const auto last = hn::Set(I32(), static_cast<int32_t>(keys.last));
  size_t i = 0;
  for (; i + 64 <= count; i += 64) {
    uint64_t mask = 0;
    for (size_t j = 0; j < 64; j += kLanes)
      mask |= InRange(hn::LoadU(F32(), values + i + j), below, last) << j;
    masks[i / 64] = mask;
  }
  magnitude_masks_scalar(values + i, count - i, keys, masks + i / 64);
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(MagnitudeMasks);

void magnitude_masks(const float* values, size_t count, KeyRange keys, uint64_t* masks) {
  HWY_DYNAMIC_DISPATCH(MagnitudeMasks)(values, count, keys, masks);
}

void magnitude_masks_scalar(const float* values, size_t count, KeyRange keys, uint64_t* masks) {
  for (size_t i = 0; i < count; ++i) {
    if (i % 64 == 0) masks[i / 64] = 0;
    const uint32_t key = magnitude_key(values[i]);
    const bool is_in = key >= keys.first && key <= keys.last;
    masks[i / 64] |= uint64_t{is_in} << (i % 64);
  }
}

}  // namespace gradbus
#endif
