#include "compression/kernels/signs.h"

#include <algorithm>
#include <cstring>

#include "compression/kernels/lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/signs.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::CappedTag<float, kSumLanes>;  // a word is four times as many
using F64 = hn::CappedTag<double, kSumLanes>;
using F32Half = hn::Rebind<float, F64>;  // as many lanes as F64
using F32Vec = hn::Vec<F32>;

struct Lanes {
  alignas(64) double below[kSumLanes] = {};
  alignas(64) double rest[kSumLanes] = {};
};

// ---- x, which has a gradient, something kept, or both

struct GradientOnly {
  static HWY_INLINE F32Vec load(const SignBlock& block, size_t i) {
    return hn::LoadU(F32(), block.gradient + i);
  }
};
struct KeptOnly {
  static HWY_INLINE F32Vec load(const SignBlock& block, size_t i) {
    const F32 d;
    return hn::Add(hn::Zero(d), hn::Mul(hn::Set(d, block.decay), hn::LoadU(d, block.kept + i)));
  }
};
struct Both {
  static HWY_INLINE F32Vec load(const SignBlock& block, size_t i) {
    const F32 d;
    const auto fresh = hn::Mul(hn::Set(d, block.gain), hn::LoadU(d, block.gradient + i));
    return hn::Add(fresh, hn::Mul(hn::Set(d, block.decay), hn::LoadU(d, block.kept + i)));
  }
};

// ---- packing

HWY_INLINE uint64_t Bits(hn::Mask<F32> mask) {
  uint8_t bytes[8];
  hn::StoreMaskBits(F32(), mask, bytes);
  if (hn::Lanes(F32()) <= 8) return bytes[0];
  uint16_t two = 0;
  std::memcpy(&two, bytes, sizeof(two));
  return two;
}

HWY_INLINE F32Vec SumOfFour(F32Vec a, F32Vec b, F32Vec c, F32Vec d) {
  return hn::Add(hn::Add(a, b), hn::Add(c, d));
}

HWY_INLINE void AddLanes(F32Vec values, double* lanes) {
  const F64 d;
  HWY_ALIGN float narrow[kSumLanes];
  hn::Store(values, F32(), narrow);
  for (size_t l = 0; l < hn::Lanes(F32()); l += hn::Lanes(d)) {
    const auto wide = hn::PromoteTo(d, hn::LoadU(F32Half(), narrow + l));
    hn::StoreU(hn::Add(hn::LoadU(d, lanes + l), wide), d, lanes + l);
  }
}

template <class X>
HWY_INLINE uint64_t PackWord(const SignBlock& block, size_t first, Lanes& lanes) {
  const F32 d;
  const auto zero = hn::Zero(d);
  uint64_t word = 0;
  for (size_t l = 0; l < 16; l += hn::Lanes(d)) {
    const auto x0 = X::load(block, first + l), x1 = X::load(block, first + l + 16);
    const auto x2 = X::load(block, first + l + 32), x3 = X::load(block, first + l + 48);
    const auto m0 = hn::Lt(x0, zero), m1 = hn::Lt(x1, zero);
    const auto m2 = hn::Lt(x2, zero), m3 = hn::Lt(x3, zero);
    word |= (Bits(m0) | Bits(m1) << 16 | Bits(m2) << 32 | Bits(m3) << 48) << l;
    AddLanes(SumOfFour(hn::IfThenElseZero(m0, x0), hn::IfThenElseZero(m1, x1),
                       hn::IfThenElseZero(m2, x2), hn::IfThenElseZero(m3, x3)),
             lanes.below + l);
    AddLanes(SumOfFour(hn::IfThenZeroElse(m0, x0), hn::IfThenZeroElse(m1, x1),
                       hn::IfThenZeroElse(m2, x2), hn::IfThenZeroElse(m3, x3)),
             lanes.rest + l);
  }
  return word;
}

template <class X>
size_t PackWords(SignBlock block, Lanes& lanes, std::byte* words) {
  size_t negatives = 0;
  for (size_t first = 0; first + 64 <= block.count; first += 64) {
    const uint64_t word = PackWord<X>(block, first, lanes);
    std::memcpy(words + first / 8, &word, sizeof(word));
    negatives += hwy::PopCount(word);
  }
  return negatives;
}

size_t PackWhole(const SignBlock& block, Lanes& lanes, std::byte* words) {
  if (block.kept == nullptr) return PackWords<GradientOnly>(block, lanes, words);
  if (block.gradient == nullptr) return PackWords<KeptOnly>(block, lanes, words);
  return PackWords<Both>(block, lanes, words);
}

// The last, partial word, with zeros behind: they have no bits and add nothing.
size_t PackTail(const SignBlock& block, Lanes& lanes, std::byte* words) {
  float gradient[64] = {};
  float kept[64] = {};
  const size_t first = block.count / 64 * 64;
  SignBlock tail = block;
  tail.count = 64;
  if (block.gradient != nullptr) {
    std::copy(block.gradient + first, block.gradient + block.count, gradient);
    tail.gradient = gradient;
  }
  if (block.kept != nullptr) {
    std::copy(block.kept + first, block.kept + block.count, kept);
    tail.kept = kept;
  }
  return PackWhole(tail, lanes, words + first / 8);
}

SignSums PackSigns(const SignBlock& block, std::byte* words) {
  Lanes lanes;
  SignSums sums;
  sums.negatives = PackWhole(block, lanes, words);
  if (block.count % 64 != 0) sums.negatives += PackTail(block, lanes, words);
  sums.below = tree_sum(lanes.below);
  sums.rest = tree_sum(lanes.rest);
  return sums;
}

// ---- what the signs lack

template <class X>
HWY_INLINE void KeepVector(const SignBlock& block, SignLevels levels, size_t i, float* kept) {
  const F32 d;
  const auto x = X::load(block, i);
  const auto below = hn::Lt(x, hn::Zero(d));
  const auto level = hn::IfThenElse(below, hn::Set(d, levels.below), hn::Set(d, levels.rest));
  hn::StoreU(hn::Sub(x, level), d, kept + i);
}

template <class X>
size_t KeepVectors(SignBlock block, SignLevels levels, size_t ahead, float* kept) {
  const size_t lanes = hn::Lanes(F32());
  size_t i = 0;
  for (; i + 16 <= block.count; i += 16) {  // a cache line
    if (block.gradient != nullptr) hwy::Prefetch(block.gradient + i + ahead);
    if (block.kept != nullptr) hwy::Prefetch(block.kept + i + ahead);
    for (size_t l = 0; l < 16; l += lanes) KeepVector<X>(block, levels, i + l, kept);
  }
  return i;
}

float Element(const SignBlock& block, size_t i) {
  if (block.kept == nullptr) return block.gradient[i];
  const float fresh = block.gradient == nullptr ? 0.0F : block.gain * block.gradient[i];
  return fresh + block.decay * block.kept[i];
}

void KeepRest(const SignBlock& block, SignLevels levels, size_t ahead, float* kept) {
  size_t i = 0;
  if (block.kept == nullptr) {
    i = KeepVectors<GradientOnly>(block, levels, ahead, kept);
  } else if (block.gradient == nullptr) {
    i = KeepVectors<KeptOnly>(block, levels, ahead, kept);
  } else {
    i = KeepVectors<Both>(block, levels, ahead, kept);
  }
  for (; i < block.count; ++i) {
    const float x = Element(block, i);
    kept[i] = x - (x < 0 ? levels.below : levels.rest);
  }
}

// ---- back to values

template <bool kAdd>
HWY_INLINE void UnpackWord(uint64_t word, size_t count, SignLevels levels, float* values) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const uint64_t bits = word >> i;
    uint8_t bytes[8];
    std::memcpy(bytes, &bits, sizeof(bytes));
    const auto below = hn::LoadMaskBits(d, bytes);
    auto value = hn::IfThenElse(below, hn::Set(d, levels.below), hn::Set(d, levels.rest));
    if (kAdd) value = hn::Add(hn::LoadU(d, values + i), value);
    hn::StoreU(value, d, values + i);
  }
  for (; i < count; ++i) {
    const float level = (word >> i & 1) != 0 ? levels.below : levels.rest;
    values[i] = kAdd ? values[i] + level : level;
  }
}

template <bool kAdd>
HWY_INLINE void Unpack(const std::byte* words, size_t count, SignLevels levels, float* values) {
  for (size_t first = 0; first < count; first += 64) {
    uint64_t word = 0;
    std::memcpy(&word, words + first / 8, sizeof(word));
    const bool whole = first + 64 <= count;
    UnpackWord<kAdd>(word, whole ? 64 : count - first, levels, values + first);
  }
}

void AddSigns(const std::byte* words, size_t count, SignLevels levels, float* sum) {
  Unpack<true>(words, count, levels, sum);
}
void PutSigns(const std::byte* words, size_t count, SignLevels levels, float* values) {
  Unpack<false>(words, count, levels, values);
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(PackSigns);
HWY_EXPORT(KeepRest);
HWY_EXPORT(AddSigns);
HWY_EXPORT(PutSigns);

SignSums pack_signs(const SignBlock& block, std::byte* words) {
  return HWY_DYNAMIC_DISPATCH(PackSigns)(block, words);
}
void keep_rest(const SignBlock& block, SignLevels levels, size_t ahead, float* kept) {
  HWY_DYNAMIC_DISPATCH(KeepRest)(block, levels, ahead, kept);
}
void add_signs(const std::byte* words, size_t count, SignLevels levels, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddSigns)(words, count, levels, sum);
}
void put_signs(const std::byte* words, size_t count, SignLevels levels, float* values) {
  HWY_DYNAMIC_DISPATCH(PutSigns)(words, count, levels, values);
}

}  // namespace gradbus
#endif
