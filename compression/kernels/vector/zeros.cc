#include "compression/kernels/vector/zeros.h"

#include <bit>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/vector/zeros.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using U32 = hn::ScalableTag<uint32_t>;

hn::Vec<U32> Load(const float* values) {
  return hn::BitCast(U32(), hn::LoadU(hn::RebindToFloat<U32>(), values));
}

// Tests eight vectors at a time, because a test and its branch cost as much as the loads.
size_t FirstNotZero(const float* values, size_t count) {
  const size_t lanes = hn::Lanes(U32());
  size_t i = 0;
  for (; i + 8 * lanes <= count; i += 8 * lanes) {
    auto any = Load(values + i);
    for (size_t j = 1; j < 8; ++j) any = hn::Or(any, Load(values + i + j * lanes));
    if (!hn::AllTrue(U32(), hn::Eq(hn::Add(any, any), hn::Zero(U32())))) break;
  }
  for (; i + lanes <= count; i += lanes) {
    const auto one = Load(values + i);
    if (!hn::AllTrue(U32(), hn::Eq(hn::Add(one, one), hn::Zero(U32())))) break;
  }
  return i + first_not_zero_scalar(values + i, count - i);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(FirstNotZero);

size_t first_not_zero(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(FirstNotZero)(values, count);
}

size_t first_not_zero_scalar(const float* values, size_t count) {
  size_t i = 0;
  while (i < count && std::bit_cast<uint32_t>(values[i]) << 1 == 0) ++i;
  return i;
}

}  // namespace gradbus
#endif
