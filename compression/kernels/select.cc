#include "compression/kernels/select.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/select.cc"
#include "hwy/cache_control.h"
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
uint32_t SelectBlockMasks(const SelectBlock& block, KeyRange keys, uint64_t* masks) {
  return select_block_scalar(block, keys, masks);
}
void KeepBlock(const SelectBlock& block, const uint64_t* cleared, float* kept) {
  keep_block_scalar(block, cleared, kept);
}
size_t PutValues(const SelectBlock& block, const uint64_t* masks, float* values) {
  return put_values_scalar(block, masks, values);
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

// ---- v, which has a gradient, something kept, or both

struct GradientOnly {
  static HWY_INLINE hn::Vec<F32> load(const SelectBlock& block, size_t i) {
    return hn::LoadU(F32(), block.gradient + i);
  }
  static HWY_INLINE void call_up(const SelectBlock&, size_t) {}  // one stream runs by itself
};
struct KeptOnly {
  static HWY_INLINE hn::Vec<F32> load(const SelectBlock& block, size_t i) {
    const F32 d;
    return hn::Add(hn::Zero(d), hn::Mul(hn::Set(d, block.decay), hn::LoadU(d, block.kept + i)));
  }
  static HWY_INLINE void call_up(const SelectBlock& block, size_t i) {
    hwy::Prefetch(block.kept + i);
    hwy::Prefetch(block.kept + i + 16);
  }
};
struct Both {
  static HWY_INLINE hn::Vec<F32> load(const SelectBlock& block, size_t i) {
    const F32 d;
    const auto kept = hn::Mul(hn::Set(d, block.decay), hn::LoadU(d, block.kept + i));
    return hn::Add(hn::LoadU(d, block.gradient + i), kept);
  }
  static HWY_INLINE void call_up(const SelectBlock& block, size_t i) {
    hwy::Prefetch(block.gradient + i);
    hwy::Prefetch(block.gradient + i + 16);
    KeptOnly::call_up(block, i);
  }
};

// What is left of a block that does not fill a word.
SelectBlock RestOf(const SelectBlock& block, size_t from) {
  SelectBlock rest = block;
  if (rest.gradient != nullptr) rest.gradient += from;
  if (rest.kept != nullptr) rest.kept += from;
  rest.count -= from;
  return rest;
}

template <class V>
uint32_t SelectWords(SelectBlock block, KeyRange keys, uint64_t* masks) {
  const I32 d;
  const auto below = hn::Set(d, static_cast<int32_t>(keys.first - 1));
  const auto last = hn::Set(d, static_cast<int32_t>(keys.last));
  auto largest = hn::Zero(d);
  size_t first = 0;
  for (; first + 64 <= block.count; first += 64) {
    V::call_up(block, block.count + first / 2);
    uint64_t mask = 0;
    for (size_t j = 0; j < 64; j += kLanes) {
      const auto v = V::load(block, first + j);
      largest = hn::Max(largest, hn::BitCast(d, hn::Abs(v)));
      mask |= InRange(v, below, last) << j;
    }
    masks[first / 64] = mask;
  }
  const uint32_t rest = select_block_scalar(RestOf(block, first), keys, masks + first / 64);
  return std::max(static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, largest))), rest);
}

uint32_t SelectBlockMasks(const SelectBlock& block, KeyRange keys, uint64_t* masks) {
  if (block.kept == nullptr) return SelectWords<GradientOnly>(block, keys, masks);
  if (block.gradient == nullptr) return SelectWords<KeptOnly>(block, keys, masks);
  return SelectWords<Both>(block, keys, masks);
}

template <class V>
void KeepWords(SelectBlock block, const uint64_t* cleared, float* kept) {
  const F32 d;
  size_t first = 0;
  for (; first + 64 <= block.count; first += 64) {
    V::call_up(block, block.count + block.count / 2 + first / 2);
    for (size_t j = 0; j < 64; j += kLanes) {
      const uint64_t bits = cleared[first / 64] >> j;
      uint8_t bytes[8];
      std::memcpy(bytes, &bits, sizeof(bytes));
      const auto v = V::load(block, first + j);
      hn::StoreU(hn::IfThenZeroElse(hn::LoadMaskBits(d, bytes), v), d, kept + first + j);
    }
  }
  keep_block_scalar(RestOf(block, first), cleared + first / 64, kept + first);
}

void KeepBlock(const SelectBlock& block, const uint64_t* cleared, float* kept) {
  return block.gradient == nullptr ? KeepWords<KeptOnly>(block, cleared, kept)
                                   : KeepWords<Both>(block, cleared, kept);
}

// A vector is squeezed at a time, where there is something in it.
template <class V>
size_t PutWords(SelectBlock block, const uint64_t* masks, float* values) {
  const F32 d;
  static_assert(kLanes <= kValueSlack);
  float* to = values;
  size_t first = 0;
  for (; first + 64 <= block.count; first += 64) {
    for (size_t j = 0; j < 64; j += kLanes) {
      const uint64_t bits = (masks[first / 64] >> j) & ((uint64_t{1} << kLanes) - 1);
      if (bits == 0) continue;
      uint8_t bytes[8];
      std::memcpy(bytes, &bits, sizeof(bytes));
      hn::StoreU(hn::Compress(V::load(block, first + j), hn::LoadMaskBits(d, bytes)), d, to);
      to += hwy::PopCount(bits);
    }
  }
  return static_cast<size_t>(to - values) +
         put_values_scalar(RestOf(block, first), masks + first / 64, to);
}

size_t PutValues(const SelectBlock& block, const uint64_t* masks, float* values) {
  if (block.kept == nullptr) return PutWords<GradientOnly>(block, masks, values);
  if (block.gradient == nullptr) return PutWords<KeptOnly>(block, masks, values);
  return PutWords<Both>(block, masks, values);
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
HWY_EXPORT(SelectBlockMasks);
HWY_EXPORT(KeepBlock);
HWY_EXPORT(PutIndices);
HWY_EXPORT(PutValues);

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

uint32_t select_block(const SelectBlock& block, KeyRange keys, uint64_t* masks) {
  return HWY_DYNAMIC_DISPATCH(SelectBlockMasks)(block, keys, masks);
}
void keep_block(const SelectBlock& block, const uint64_t* cleared, float* kept) {
  HWY_DYNAMIC_DISPATCH(KeepBlock)(block, cleared, kept);
}
size_t put_values(const SelectBlock& block, const uint64_t* masks, float* values) {
  return HWY_DYNAMIC_DISPATCH(PutValues)(block, masks, values);
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

uint32_t select_block_scalar(const SelectBlock& block, KeyRange keys, uint64_t* masks) {
  uint32_t largest = 0;
  for (size_t i = 0; i < block.count; ++i) {
    if (i % 64 == 0) masks[i / 64] = 0;
    const uint32_t key = magnitude_key(element(block, i));
    largest = std::max(largest, key);
    const bool is_in = key >= keys.first && key <= keys.last;
    masks[i / 64] |= uint64_t{is_in} << (i % 64);
  }
  return largest;
}

void keep_block_scalar(const SelectBlock& block, const uint64_t* cleared, float* kept) {
  for (size_t i = 0; i < block.count; ++i)
    kept[i] = (cleared[i / 64] >> (i % 64) & 1) != 0 ? 0 : element(block, i);
}

size_t put_values_scalar(const SelectBlock& block, const uint64_t* masks, float* values) {
  size_t found = 0;
  for (size_t m = 0; m < (block.count + 63) / 64; ++m)
    for (uint64_t mask = masks[m]; mask != 0; mask &= mask - 1)
      values[found++] = element(block, 64 * m + static_cast<size_t>(std::countr_zero(mask)));
  return found;
}

}  // namespace gradbus
#endif
