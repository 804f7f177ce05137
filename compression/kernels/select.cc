#include "compression/kernels/select.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/select.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// After foreach_target.h, too.
#include "compression/kernels/select_inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_SELECT_SCALAR
void MagnitudeMasks(const float* values, size_t count, KeyRange keys, uint64_t* masks) {
  magnitude_masks_scalar(values, count, keys, masks);
}
size_t TakeBlock(const SelectBlock& block, uint32_t from, uint64_t* masks) {
  return take_block_scalar(block, from, masks);
}
size_t PutValues(const float* from, size_t count, const uint64_t* masks, float* to) {
  return put_values_scalar(from, count, masks, to);
}
size_t MoveValues(float* from, size_t count, const uint64_t* masks, float* to) {
  return move_values_scalar(from, count, masks, to);
}
#else

// below < key <= last, a bit each. Keys are under 2^31, so signed comparison does, which every
// target has.
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

// One word, unless something in it is not finite. Nothing is stored before that is known, so its
// vectors wait in registers: hence indices known to the compiler.
template <class V, size_t... kAt>
HWY_INLINE bool TakeWord(const SelectBlock& block, size_t first, hn::Vec<I32> below, uint64_t* mask,
                         std::index_sequence<kAt...>) {
  const I32 d;
  const hn::Vec<F32> v[] = {V::load(block, first + kAt * kLanes)...};
  const hn::Vec<I32> keys[] = {hn::BitCast(d, hn::Abs(v[kAt]))...};
  auto largest = keys[0];
  ((largest = hn::Max(largest, keys[kAt])), ...);
  const auto finite = hn::Set(d, static_cast<int32_t>(kKeyInfinity - 1));
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(largest, finite)))) return false;
  *mask = ((ToBits(hn::Gt(keys[kAt], below)) << (kAt * kLanes)) | ...);
  if constexpr (V::kKeeps) (hn::StoreU(v[kAt], F32(), block.kept + first + kAt * kLanes), ...);
  return true;
}

template <class V>
size_t TakeWords(SelectBlock block, uint32_t from, uint64_t* masks) {
  const auto below = hn::Set(I32(), static_cast<int32_t>(from - 1));
  size_t first = 0;
  for (; first + 64 <= block.count; first += 64) {
    if (kCallsUp) V::fetch(block, first + kAhead);
    if (!TakeWord<V>(block, first, below, &masks[first / 64],
                     std::make_index_sequence<64 / kLanes>()))
      return first;
  }
  return first + take_block_scalar(RestOf(block, first), from, masks + first / 64);
}

size_t TakeBlock(const SelectBlock& block, uint32_t from, uint64_t* masks) {
  if (block.kept == nullptr) return TakeWords<LoadGradient>(block, from, masks);
  if (block.gradient == nullptr) return TakeWords<LoadKept>(block, from, masks);
  return TakeWords<LoadBoth>(block, from, masks);
}

// A vector is squeezed at a time, where there is something in it.
template <bool kMoves, typename From>
HWY_INLINE size_t PutWords(From* from, size_t count, const uint64_t* masks, float* values) {
  const F32 d;
  static_assert(kLanes <= kValueSlack);
  float* to = values;
  size_t first = 0;
  for (; first + 64 <= count; first += 64) {
    for (size_t j = 0; j < 64; j += kLanes) {
      const uint64_t bits = (masks[first / 64] >> j) & ((uint64_t{1} << kLanes) - 1);
      if (bits == 0) continue;
      const Squeeze squeeze(d, bits);
      const auto v = hn::LoadU(d, from + first + j);
      hn::StoreU(squeeze.of(v), d, to);
      if constexpr (kMoves) hn::StoreU(hn::IfThenZeroElse(MaskOf(bits), v), d, from + first + j);
      to += squeeze.found();
    }
  }
  const size_t found = static_cast<size_t>(to - values);
  if constexpr (kMoves)
    return found + move_values_scalar(from + first, count - first, masks + first / 64, to);
  return found + put_values_scalar(from + first, count - first, masks + first / 64, to);
}

size_t PutValues(const float* from, size_t count, const uint64_t* masks, float* to) {
  return PutWords<false>(from, count, masks, to);
}
size_t MoveValues(float* from, size_t count, const uint64_t* masks, float* to) {
  return PutWords<true>(from, count, masks, to);
}
#endif

// Four at a time without asking how many there are: a loop that ends with the last bit of each mask
// mispredicts in most of them, 14 ns for each selected element at a density of 0.01.
size_t PutIndices(const uint64_t* masks, size_t count, uint32_t first, uint32_t* indices) {
  uint32_t* to = indices;
  for (size_t m = 0; m < (count + 63) / 64; ++m) {
    uint64_t mask = masks[m];
    const uint32_t base = first + static_cast<uint32_t>(64 * m);
    const size_t bits = hwy::PopCount(mask);
    for (size_t done = 0; done < 4 || done < bits; done += 4) {
      for (size_t k = 0; k < 4; ++k, mask &= mask - 1)
        to[done + k] = base + static_cast<uint32_t>(std::countr_zero(mask));
    }
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
HWY_EXPORT(PutValues);
HWY_EXPORT(MoveValues);

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

size_t take_block(const SelectBlock& block, uint32_t from, uint64_t* masks) {
  return HWY_DYNAMIC_DISPATCH(TakeBlock)(block, from, masks);
}
size_t put_values(const float* from, size_t count, const uint64_t* masks, float* to) {
  return HWY_DYNAMIC_DISPATCH(PutValues)(from, count, masks, to);
}
size_t move_values(float* from, size_t count, const uint64_t* masks, float* to) {
  return HWY_DYNAMIC_DISPATCH(MoveValues)(from, count, masks, to);
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

size_t take_block_scalar(const SelectBlock& block, uint32_t from, uint64_t* masks) {
  for (size_t first = 0; first < block.count; first += 64) {
    const size_t end = std::min(first + 64, block.count);
    for (size_t i = first; i < end; ++i)
      if (magnitude_key(element(block, i)) >= kKeyInfinity) return first;
    masks[first / 64] = 0;
    for (size_t i = first; i < end; ++i) {
      const float v = element(block, i);
      masks[first / 64] |= uint64_t{magnitude_key(v) >= from} << (i % 64);
      if (block.kept != nullptr) block.kept[i] = v;
    }
  }
  return block.count;
}

size_t put_values_scalar(const float* from, size_t count, const uint64_t* masks, float* to) {
  size_t found = 0;
  for (size_t m = 0; m < (count + 63) / 64; ++m)
    for (uint64_t mask = masks[m]; mask != 0; mask &= mask - 1)
      to[found++] = from[64 * m + static_cast<size_t>(std::countr_zero(mask))];
  return found;
}

size_t move_values_scalar(float* from, size_t count, const uint64_t* masks, float* to) {
  const size_t found = put_values_scalar(from, count, masks, to);
  for (size_t m = 0; m < (count + 63) / 64; ++m)
    for (uint64_t mask = masks[m]; mask != 0; mask &= mask - 1)
      from[64 * m + static_cast<size_t>(std::countr_zero(mask))] = 0;
  return found;
}

}  // namespace gradbus
#endif
