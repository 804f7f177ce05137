#include "compression/kernels/select/select.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/select/select.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// Must come after foreach_target.h.
#include "compression/kernels/select/select_inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_SELECT_SCALAR
void MagnitudeMasks(const float* values, size_t count, KeyRange keys, uint64_t* masks) {
  magnitude_masks_scalar(values, count, keys, masks);
}
TakenBlock TakeBlock(const SelectBlock& block, uint32_t from, uint64_t* masks, float* values) {
  return take_block_scalar(block, from, masks, values);
}
#else

// Sets a bit for each key with below < key <= last. Keys are under 2^31, so signed comparison
// works; every target has it.
uint64_t InRange(hn::Vec<F32> values, hn::Vec<I32> below, hn::Vec<I32> last) {
  const auto key = hn::BitCast(I32(), hn::Abs(values));
  return ToBits(hn::AndNot(hn::Gt(key, last), hn::Gt(key, below)));
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

SelectBlock RestOf(const SelectBlock& block, size_t from) {
  SelectBlock rest = block;
  if (rest.gradient != nullptr) rest.gradient += from;
  if (rest.kept != nullptr) rest.kept += from;
  rest.count -= from;
  return rest;
}

HWY_INLINE void PutSelected(hn::Vec<F32> v, uint64_t bits, float*& to) {
  const Squeeze squeeze(F32(), bits);
  hn::StoreU(squeeze.of(v), F32(), to);
  to += squeeze.found();
}

// Selects from one word, unless an element in it is not finite. Nothing is stored before that is
// known, so the vectors wait in registers. That requires indices known to the compiler.
template <class V, bool kClears, size_t... kAt>
HWY_INLINE bool TakeWord(const SelectBlock& block, size_t first, hn::Vec<I32> below, uint64_t* mask,
                         float*& to, std::index_sequence<kAt...>) {
  const I32 d;
  const F32 df;
  const hn::Vec<F32> v[] = {V::load(block, first + kAt * kLanes)...};
  const hn::Vec<I32> keys[] = {hn::BitCast(d, hn::Abs(v[kAt]))...};
  auto largest = keys[0];
  ((largest = hn::Max(largest, keys[kAt])), ...);
  const auto finite = hn::Set(d, static_cast<int32_t>(kKeyInfinity - 1));
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(largest, finite)))) return false;
  const hn::Vec<F32> left[] = {
      kClears ? hn::IfThenZeroElse(hn::RebindMask(df, hn::Gt(keys[kAt], below)), v[kAt])
              : v[kAt]...};
  if constexpr (V::kKeeps) (hn::StoreU(left[kAt], df, block.kept + first + kAt * kLanes), ...);
  const uint64_t bits[] = {ToBits(hn::Gt(keys[kAt], below))...};
  *mask = ((bits[kAt] << (kAt * kLanes)) | ...);
  (PutSelected(v[kAt], bits[kAt], to), ...);
  return true;
}

template <class V, bool kClears>
TakenBlock TakeWords(SelectBlock block, uint32_t from, uint64_t* masks, float* values) {
  const auto below = hn::Set(I32(), static_cast<int32_t>(from - 1));
  static_assert(kLanes <= kValueSlack);
  float* to = values;
  size_t first = 0;
  for (; first + 64 <= block.count; first += 64) {
    if (kPrefetches) V::fetch(block, first + kAhead);
    if (!TakeWord<V, kClears>(block, first, below, &masks[first / 64], to,
                              std::make_index_sequence<64 / kLanes>()))
      return {first, static_cast<size_t>(to - values)};
  }
  const TakenBlock rest = take_block_scalar(RestOf(block, first), from, masks + first / 64, to);
  return {first + rest.taken, static_cast<size_t>(to - values) + rest.found};
}

template <class V>
TakenBlock TakeBlockOf(const SelectBlock& block, uint32_t from, uint64_t* masks, float* values) {
  return block.clears ? TakeWords<V, true>(block, from, masks, values)
                      : TakeWords<V, false>(block, from, masks, values);
}

TakenBlock TakeBlock(const SelectBlock& block, uint32_t from, uint64_t* masks, float* values) {
  if (block.kept == nullptr) return TakeWords<LoadGradient, false>(block, from, masks, values);
  if (block.gradient == nullptr) return TakeBlockOf<LoadKept>(block, from, masks, values);
  return TakeBlockOf<LoadBoth>(block, from, masks, values);
}
#endif

// Writes four at a time without a check of the number. A loop that ends with the last bit of each
// mask is often mispredicted: 14 ns for each selected element at a density of 0.01.
size_t PutIndices(const uint64_t* masks, size_t count, uint32_t first, uint32_t* indices) {
  uint32_t* to = indices;
  for (size_t m = 0; m < (count + 63) / 64; ++m) {
    uint64_t mask = masks[m];
    const uint32_t base = first + static_cast<uint32_t>(64 * m);
    const size_t bits = hwy::PopCount(mask);
    const auto put = [&](size_t at) HWY_ATTR {
      to[at] = base + static_cast<uint32_t>(std::countr_zero(mask));
      mask &= mask - 1;
    };
    size_t done = 0;
    do {
      put(done);  // no loop: GCC would not unroll it, at half the speed
      put(done + 1);
      put(done + 2);
      put(done + 3);
      done += 4;
    } while (HWY_UNLIKELY(done < bits));
    to += bits;
  }
  return static_cast<size_t>(to - indices);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(MagnitudeMasks);
HWY_EXPORT(TakeBlock);
HWY_EXPORT(PutIndices);

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

TakenBlock take_block(const SelectBlock& block, uint32_t from, uint64_t* masks, float* values) {
  return HWY_DYNAMIC_DISPATCH(TakeBlock)(block, from, masks, values);
}
size_t put_indices(const uint64_t* masks, size_t count, uint32_t first, uint32_t* indices) {
  return HWY_DYNAMIC_DISPATCH(PutIndices)(masks, count, first, indices);
}

namespace {
float element(const SelectBlock& block, size_t i) {
  if (block.kept == nullptr) return block.gradient[i];
  const float fresh = block.gradient == nullptr ? 0.0F : block.gradient[i];
  return fresh + block.decay * block.kept[i];
}
}  // namespace

TakenBlock take_block_scalar(const SelectBlock& block, uint32_t from, uint64_t* masks,
                             float* values) {
  size_t found = 0;
  for (size_t first = 0; first < block.count; first += 64) {
    const size_t end = std::min(first + 64, block.count);
    std::array<float, 64> word;  // each element is read once
    for (size_t i = first; i < end; ++i) {
      word[i - first] = element(block, i);
      if (magnitude_key(word[i - first]) >= kKeyInfinity) return {first, found};
    }
    masks[first / 64] = 0;
    for (size_t i = first; i < end; ++i) {
      const float v = word[i - first];
      const bool selected = magnitude_key(v) >= from;
      masks[first / 64] |= uint64_t{selected} << (i % 64);
      if (block.kept != nullptr) block.kept[i] = selected && block.clears ? 0 : v;
      if (selected) values[found++] = v;
    }
  }
  return {block.count, found};
}

}  // namespace gradbus
#endif
