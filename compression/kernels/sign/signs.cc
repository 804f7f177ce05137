#include "compression/kernels/sign/signs.h"

#include <algorithm>
#include <cstring>

#include "compression/kernels/vector/lanes.h"
#include "compression/kernels/vector/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/sign/signs.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::CappedTag<float, kSumLanes>;  // a word has four times as many lanes
using F64 = hn::CappedTag<double, kSumLanes>;
using F32Half = hn::Rebind<float, F64>;  // as many lanes as F64
using F32Vec = hn::Vec<F32>;
constexpr size_t kBatchElements = 256;
constexpr size_t kLineElements = 16;

// Sums of the elements below 0, or of the others. `near` sums up to four words, `far` all earlier
// ones.
struct Lanes {
  alignas(64) float near[kSumLanes] = {};
  alignas(64) double far[kSumLanes] = {};
};
struct BothLanes {
  Lanes below;
  Lanes rest;
};

// ---- x from a gradient, from something kept, or from both

struct GradientOnly {
  static HWY_INLINE F32Vec load(const SignBlock& block, size_t i) {
    return hn::LoadU(F32(), block.gradient + i);
  }
  static HWY_INLINE void prefetch(const SignBlock& block, size_t i) {
    gradbus::prefetch(block.gradient + i);
  }
};
struct KeptOnly {
  static HWY_INLINE F32Vec load(const SignBlock& block, size_t i) {
    const F32 d;
    return hn::Add(hn::Zero(d), hn::Mul(hn::Set(d, block.decay), hn::LoadU(d, block.kept + i)));
  }
  static HWY_INLINE void prefetch(const SignBlock& block, size_t i) {
    gradbus::prefetch(block.kept + i);
  }
};
struct Both {
  static HWY_INLINE F32Vec load(const SignBlock& block, size_t i) {
    const F32 d;
    const auto kept = hn::Mul(hn::Set(d, block.decay), hn::LoadU(d, block.kept + i));
    return hn::Add(hn::LoadU(d, block.gradient + i), kept);
  }
  static HWY_INLINE void prefetch(const SignBlock& block, size_t i) {
    gradbus::prefetch(block.gradient + i);
    gradbus::prefetch(block.kept + i);
  }
};

// ---- prefetching

// While element i is processed, element base + (i >> shift) is prefetched. Otherwise the arithmetic
// keeps the next loads out of the processor's window (Zen 3: 10 GB/s instead of 12.5 of 15).
// Between two passes over a block in the cache the memory would be idle (19 GB/s instead of 24 of
// 29). So each pass prefetches one half of the next block.
struct Ahead {
  size_t base;
  size_t shift;
};

constexpr size_t kAhead = 1024;
constexpr size_t kCachedElements = 32768;  // two blocks of up to this size fit a second-level cache

Ahead AheadOf(const SignBlock& block, size_t pass) {
  if (block.kept == nullptr || block.count > kCachedElements) return {kAhead, 0};
  return {block.count + pass * block.count / 2, 1};
}

// Prefetches for the word that begins at `first`. Has no effect past the end of memory.
template <class X>
HWY_INLINE void PrefetchNext(const SignBlock& block, Ahead ahead, size_t first) {
  if (!kPrefetches) return;
  const size_t at = ahead.base + (first >> ahead.shift);
  X::prefetch(block, at);
  X::prefetch(block, at + kLineElements);
  if (ahead.shift != 0) return;
  X::prefetch(block, at + 2 * kLineElements);
  X::prefetch(block, at + 3 * kLineElements);
}

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

HWY_INLINE void AddTo(F32Vec values, float* lanes) {
  hn::Store(hn::Add(hn::Load(F32(), lanes), values), F32(), lanes);
}

void Flush(Lanes& lanes) {
  const F64 d;
  for (size_t l = 0; l < kSumLanes; l += hn::Lanes(d)) {
    const auto wide = hn::PromoteTo(d, hn::Load(F32Half(), lanes.near + l));
    hn::Store(hn::Add(hn::Load(d, lanes.far + l), wide), d, lanes.far + l);
  }
  std::fill(lanes.near, lanes.near + kSumLanes, 0.0F);
}

template <class X>
HWY_INLINE uint64_t PackWord(const SignBlock& block, size_t first, BothLanes& lanes) {
  const F32 d;
  const auto zero = hn::Zero(d);
  uint64_t word = 0;
  for (size_t l = 0; l < kSumLanes; l += hn::Lanes(d)) {
    const auto x0 = X::load(block, first + l), x1 = X::load(block, first + l + 16);
    const auto x2 = X::load(block, first + l + 32), x3 = X::load(block, first + l + 48);
    const auto m0 = hn::Lt(x0, zero), m1 = hn::Lt(x1, zero);
    const auto m2 = hn::Lt(x2, zero), m3 = hn::Lt(x3, zero);
    word |= (Bits(m0) | Bits(m1) << 16 | Bits(m2) << 32 | Bits(m3) << 48) << l;
    AddTo(SumOfFour(hn::IfThenElseZero(m0, x0), hn::IfThenElseZero(m1, x1),
                    hn::IfThenElseZero(m2, x2), hn::IfThenElseZero(m3, x3)),
          lanes.below.near + l);
    AddTo(SumOfFour(hn::IfThenZeroElse(m0, x0), hn::IfThenZeroElse(m1, x1),
                    hn::IfThenZeroElse(m2, x2), hn::IfThenZeroElse(m3, x3)),
          lanes.rest.near + l);
  }
  return word;
}

template <class X>
size_t PackWords(SignBlock block, BothLanes& lanes, std::byte* words) {
  const Ahead ahead = AheadOf(block, 0);
  size_t negatives = 0;
  for (size_t first = 0; first + 64 <= block.count; first += 64) {
    PrefetchNext<X>(block, ahead, first);
    const uint64_t word = PackWord<X>(block, first, lanes);
    std::memcpy(words + first / 8, &word, sizeof(word));
    negatives += hwy::PopCount(word);
    if (first % kBatchElements != kBatchElements - 64) continue;
    Flush(lanes.below);
    Flush(lanes.rest);
  }
  return negatives;
}

size_t PackWhole(const SignBlock& block, BothLanes& lanes, std::byte* words) {
  if (block.kept == nullptr) return PackWords<GradientOnly>(block, lanes, words);
  if (block.gradient == nullptr) return PackWords<KeptOnly>(block, lanes, words);
  return PackWords<Both>(block, lanes, words);
}

// The last, partial word is padded with zeros. They set no bits and add nothing.
size_t PackTail(const SignBlock& block, BothLanes& lanes, std::byte* words) {
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
  BothLanes lanes;
  SignSums sums;
  sums.negatives = PackWhole(block, lanes, words);
  if (block.count % 64 != 0) sums.negatives += PackTail(block, lanes, words);
  Flush(lanes.below);
  Flush(lanes.rest);
  sums.below = tree_sum(lanes.below.far);
  sums.rest = tree_sum(lanes.rest.far);
  return sums;
}

// ---- the error of the signs

template <class X>
HWY_INLINE void KeepVector(const SignBlock& block, SignLevels levels, size_t i, float* kept) {
  const F32 d;
  const auto x = X::load(block, i);
  const auto below = hn::Lt(x, hn::Zero(d));
  const auto level = hn::IfThenElse(below, hn::Set(d, levels.below), hn::Set(d, levels.rest));
  hn::StoreU(hn::Sub(x, level), d, kept + i);
}

template <class X>
size_t KeepWords(SignBlock block, SignLevels levels, float* kept) {
  const Ahead ahead = AheadOf(block, 1);
  size_t first = 0;
  for (; first + 64 <= block.count; first += 64) {
    PrefetchNext<X>(block, ahead, first);
    for (size_t l = 0; l < 64; l += hn::Lanes(F32())) KeepVector<X>(block, levels, first + l, kept);
  }
  return first;
}

float Element(const SignBlock& block, size_t i) {
  if (block.kept == nullptr) return block.gradient[i];
  const float fresh = block.gradient == nullptr ? 0.0F : block.gradient[i];
  return fresh + block.decay * block.kept[i];
}

void KeepRest(const SignBlock& block, SignLevels levels, float* kept) {
  size_t i = 0;
  if (block.kept == nullptr) {
    i = KeepWords<GradientOnly>(block, levels, kept);
  } else if (block.gradient == nullptr) {
    i = KeepWords<KeptOnly>(block, levels, kept);
  } else {
    i = KeepWords<Both>(block, levels, kept);
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
    if (kAdd)
      for (size_t i = 0; i < 64; i += kLineElements) hwy::Prefetch(values + first + kAhead + i);
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
void keep_rest(const SignBlock& block, SignLevels levels, float* kept) {
  HWY_DYNAMIC_DISPATCH(KeepRest)(block, levels, kept);
}
void add_signs(const std::byte* words, size_t count, SignLevels levels, float* sum) {
  HWY_DYNAMIC_DISPATCH(AddSigns)(words, count, levels, sum);
}
void put_signs(const std::byte* words, size_t count, SignLevels levels, float* values) {
  HWY_DYNAMIC_DISPATCH(PutSigns)(words, count, levels, values);
}

}  // namespace gradbus
#endif
