#include "compression/kernels/select.h"

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
using U32 = hn::RebindToUnsigned<F32>;
static_assert(hn::MaxLanes(F32()) <= kSelectSlack, "a vector store stays in the slack");

// below < key <= last. Keys are under 2^31, so signed comparison does, which every target has.
hn::Mask<F32> InRange(hn::Vec<F32> values, hn::Vec<I32> below, hn::Vec<I32> last) {
  const auto key = hn::BitCast(I32(), hn::Abs(values));
  return hn::RebindMask(F32(), hn::AndNot(hn::Gt(key, last), hn::Gt(key, below)));
}

// Most vectors hold nothing, so four are looked at with one branch.
size_t SelectMagnitudes(const float* values, size_t count, uint32_t first_index, KeyRange keys,
                        uint32_t* indices, float* selected) {
  const F32 d;
  const U32 du;
  const size_t lanes = hn::Lanes(d);
  const auto below = hn::Set(I32(), static_cast<int32_t>(keys.first - 1));
  const auto last = hn::Set(I32(), static_cast<int32_t>(keys.last));
  size_t found = 0;
  const auto append = [&](size_t i, hn::Mask<F32> mask) HWY_ATTR {
    if (hn::AllFalse(d, mask)) return;
    const auto index = hn::Iota(du, first_index + static_cast<uint32_t>(i));
    hn::CompressStore(index, hn::RebindMask(du, mask), du, indices + found);
    found += hn::CompressStore(hn::LoadU(d, values + i), mask, d, selected + found);
  };
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto m0 = InRange(hn::LoadU(d, values + i), below, last);
    const auto m1 = InRange(hn::LoadU(d, values + i + lanes), below, last);
    const auto m2 = InRange(hn::LoadU(d, values + i + 2 * lanes), below, last);
    const auto m3 = InRange(hn::LoadU(d, values + i + 3 * lanes), below, last);
    if (hn::AllFalse(d, hn::Or(hn::Or(m0, m1), hn::Or(m2, m3)))) continue;
    append(i, m0);
    append(i + lanes, m1);
    append(i + 2 * lanes, m2);
    append(i + 3 * lanes, m3);
  }
  return found + select_magnitudes_scalar(values + i, count - i,
                                          first_index + static_cast<uint32_t>(i), keys,
                                          indices + found, selected + found);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(SelectMagnitudes);

size_t select_magnitudes(const float* values, size_t count, uint32_t first_index, KeyRange keys,
                         uint32_t* indices, float* selected) {
  return HWY_DYNAMIC_DISPATCH(SelectMagnitudes)(values, count, first_index, keys, indices,
                                                selected);
}

size_t select_magnitudes_scalar(const float* values, size_t count, uint32_t first_index,
                                KeyRange keys, uint32_t* indices, float* selected) {
  size_t found = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t key = magnitude_key(values[i]);
    if (key < keys.first || key > keys.last) continue;
    indices[found] = first_index + static_cast<uint32_t>(i);
    selected[found++] = values[i];
  }
  return found;
}

}  // namespace gradbus
#endif
