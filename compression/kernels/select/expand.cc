#include "compression/kernels/select/expand.h"

#include <cstdint>
#include <cstring>

#include "compression/kernels/select/bit_places.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/select/expand.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;

// The base instruction sets cannot count bits, so this is compiled per target.
size_t CountBits(const std::byte* bits, size_t count) {
  const size_t bytes = (count + 7) / 8;
  size_t found = 0;
  size_t i = 0;
  for (; i + 8 <= bytes; i += 8) {
    uint64_t word;
    std::memcpy(&word, bits + i, sizeof(word));
    found += hwy::PopCount(word);
  }
  for (; i < bytes; ++i) found += hwy::PopCount(std::to_integer<uint64_t>(bits[i]));
  return found;
}

#if HWY_HAVE_SCALABLE
size_t AddExpanded(const std::byte* bits, size_t count, const float* values, float* sum) {
  return add_expanded_scalar(bits, count, values, sum);
}
#else
using F32 = hn::CappedTag<float, 8>;  // at most one byte of bits
using Index = hn::RebindToSigned<F32>;
constexpr size_t kLanes = hn::MaxLanes(F32());

// Handles the bits of one vector; returns how many are set.
HWY_INLINE size_t AddVector(uint32_t bits, const float* values, float* sum) {
  const F32 d;
  const hn::Rebind<uint8_t, F32> bytes;
  const auto ranks = hn::PromoteTo(Index(), hn::LoadU(bytes, kBitRanks[bits].data()));
  const auto found = hn::TableLookupLanes(hn::LoadU(d, values), hn::IndicesFromVec(d, ranks));
  const uint8_t stored[8] = {static_cast<uint8_t>(bits)};
  const auto mask = hn::LoadMaskBits(d, stored);
  const auto old = hn::LoadU(d, sum);
  hn::StoreU(hn::IfThenElse(mask, hn::Add(old, found), old), d, sum);
  return hwy::PopCount(uint64_t{bits});
}

size_t AddExpanded(const std::byte* bits, size_t count, const float* values, float* sum) {
  size_t used = 0;
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const auto byte = std::to_integer<uint32_t>(bits[i / 8]);
    for (size_t j = 0; j < 8; j += kLanes)
      used += AddVector(byte >> j & ((1u << kLanes) - 1), values + used, sum + i + j);
  }
  return used + add_expanded_scalar(bits + i / 8, count - i, values + used, sum + i);
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(AddExpanded);
HWY_EXPORT(CountBits);

size_t add_expanded(const std::byte* bits, size_t count, const float* values, float* sum) {
  return HWY_DYNAMIC_DISPATCH(AddExpanded)(bits, count, values, sum);
}

size_t count_bits(const std::byte* bits, size_t count) {
  return HWY_DYNAMIC_DISPATCH(CountBits)(bits, count);
}

size_t add_expanded_scalar(const std::byte* bits, size_t count, const float* values, float* sum) {
  size_t used = 0;
  for (size_t i = 0; i < count; ++i)
    if ((std::to_integer<uint32_t>(bits[i / 8]) >> i % 8 & 1) != 0) sum[i] += values[used++];
  return used;
}

}  // namespace gradbus
#endif
