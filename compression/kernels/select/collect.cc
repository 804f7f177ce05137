#include "compression/kernels/select/collect.h"

#include <algorithm>
#include <array>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/select/collect.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"
// Must come after foreach_target.h.
#include "compression/kernels/select/select_inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_SELECT_SCALAR
Collected CollectBlockOf(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                         float* values) {
  return collect_block_scalar(block, keys, indices, values);
}
size_t KeepListed(uint32_t from, size_t count, uint32_t* indices, float* values) {
  return keep_listed_scalar(from, count, indices, values);
}
#else
static_assert(kLanes <= kCollectSlack);
using U32 = hn::RebindToUnsigned<F32>;

// ---- v, and what is remembered besides

template <class V>
struct Without {
  static constexpr bool kKeeps = V::kKeeps;
  static constexpr bool kRemembers = false;
  static HWY_INLINE void fetch(const CollectBlock& block, size_t i) { V::fetch(block.of, i); }
  static HWY_INLINE hn::Vec<F32> remember(const CollectBlock&, size_t) { return hn::Zero(F32()); }
  static HWY_INLINE hn::Vec<F32> load(const CollectBlock& block, size_t i, hn::Vec<F32>) {
    return V::load(block.of, i);
  }
};

template <bool kNesterov>
struct WithMomentum {
  static constexpr bool kKeeps = true;
  static constexpr bool kRemembers = true;
  static HWY_INLINE void fetch(const CollectBlock& block, size_t i) {
    LoadBoth::fetch(block.of, i);
    PrefetchWord(block.momentum + i);
  }
  static HWY_INLINE hn::Vec<F32> fresh(const CollectBlock& block, size_t i) {
    const F32 d;
    return hn::Mul(hn::Set(d, block.step.clip), hn::LoadU(d, block.of.gradient + i));
  }
  static HWY_INLINE hn::Vec<F32> remember(const CollectBlock& block, size_t i) {
    const F32 d;
    const auto factor = hn::Set(d, block.step.momentum);
    const auto old = hn::LoadU(d, block.momentum + i);
    const auto g = fresh(block, i);
    return kNesterov ? hn::Mul(factor, hn::Add(old, g)) : hn::Add(hn::Mul(factor, old), g);
  }
  static HWY_INLINE hn::Vec<F32> load(const CollectBlock& block, size_t i, hn::Vec<F32> m) {
    const F32 d;
    const auto kept = hn::Mul(hn::Set(d, block.of.decay), hn::LoadU(d, block.of.kept + i));
    return hn::Add(kept, kNesterov ? hn::Add(m, fresh(block, i)) : m);
  }
};

// ---- a word of 64

struct Lists {
  uint32_t* indices;
  float* values;
};

// Writes every vector, and the next one overwrites the excess. A branch would be unpredictable
// where 1 element in 100 is found. Where 1 in 1000 is found, a branch per word takes 0.92 of the
// time.
HWY_INLINE void Put(hn::Vec<F32> v, hn::Mask<I32> mask, uint32_t first, Lists& to) {
  const U32 du;
  const Squeeze squeeze(F32(), ToBits(mask));
  hn::StoreU(squeeze.of(v), F32(), to.values);
  hn::StoreU(squeeze.of(hn::Iota(du, first)), du, to.indices);
  to.values += squeeze.found();
  to.indices += squeeze.found();
}

// Collects one word, unless an element in it is not finite. Nothing is stored before that is known,
// so the vectors wait in registers. That requires indices known to the compiler.
template <class V, bool kFew, size_t... kAt>
HWY_INLINE bool CollectWord(const CollectBlock& block, size_t first, hn::Vec<I32> below,
                            hn::Vec<I32> clear_below, Lists& to, std::index_sequence<kAt...>) {
  const I32 d;
  const F32 df;
  const hn::Vec<F32> m[] = {V::remember(block, first + kAt * kLanes)...};
  const hn::Vec<F32> v[] = {V::load(block, first + kAt * kLanes, m[kAt])...};
  const hn::Vec<I32> keys[] = {hn::BitCast(d, hn::Abs(v[kAt]))...};
  auto largest = keys[0];
  ((largest = hn::Max(largest, keys[kAt])), ...);
  const auto finite = hn::Set(d, static_cast<int32_t>(kKeyInfinity - 1));
  if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(largest, finite)))) return false;
  if constexpr (V::kRemembers) (hn::StoreU(m[kAt], df, block.momentum + first + kAt * kLanes), ...);
  if constexpr (V::kKeeps)
    (hn::StoreU(hn::IfThenZeroElse(hn::RebindMask(df, hn::Gt(keys[kAt], clear_below)), v[kAt]), df,
                block.of.kept + first + kAt * kLanes),
     ...);
  if (kFew && hn::AllFalse(d, hn::Gt(largest, below))) return true;
  const uint32_t index = block.first + static_cast<uint32_t>(first);
  (Put(v[kAt], hn::Gt(keys[kAt], below), index + static_cast<uint32_t>(kAt * kLanes), to), ...);
  return true;
}

CollectBlock RestOf(const CollectBlock& block, size_t from) {
  CollectBlock rest = block;
  if (rest.of.gradient != nullptr) rest.of.gradient += from;
  if (rest.of.kept != nullptr) rest.of.kept += from;
  if (rest.momentum != nullptr) rest.momentum += from;
  rest.of.count -= from;
  rest.first += static_cast<uint32_t>(from);
  return rest;
}

template <class V, bool kFew>
Collected CollectAllWords(CollectBlock block, CollectKeys keys, uint32_t* indices, float* values) {
  const auto below = hn::Set(I32(), static_cast<int32_t>(keys.from - 1));
  const auto clear_below = hn::Set(I32(), static_cast<int32_t>(keys.clear_from - 1));
  Lists to{indices, values};
  size_t first = 0;
  const auto found = [&] { return static_cast<size_t>(to.indices - indices); };
  for (; first + 64 <= block.of.count; first += 64) {
    if (kPrefetches) V::fetch(block, first + kAhead);
    if (!CollectWord<V, kFew>(block, first, below, clear_below, to,
                              std::make_index_sequence<64 / kLanes>()))
      return {first, found()};
  }
  const Collected rest = collect_block_scalar(RestOf(block, first), keys, to.indices, to.values);
  return {first + rest.taken, found() + rest.found};
}

template <class V>
Collected CollectWords(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                       float* values) {
  return block.few ? CollectAllWords<V, true>(block, keys, indices, values)
                   : CollectAllWords<V, false>(block, keys, indices, values);
}

Collected CollectBlockOf(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                         float* values) {
  if (block.momentum != nullptr)
    return block.step.nesterov ? CollectWords<WithMomentum<true> >(block, keys, indices, values)
                               : CollectWords<WithMomentum<false> >(block, keys, indices, values);
  if (block.of.kept == nullptr)
    return CollectWords<Without<LoadGradient> >(block, keys, indices, values);
  if (block.of.gradient == nullptr)
    return CollectWords<Without<LoadKept> >(block, keys, indices, values);
  return CollectWords<Without<LoadBoth> >(block, keys, indices, values);
}

// Works in place: a vector is read before it is overwritten.
size_t KeepListed(uint32_t from, size_t count, uint32_t* indices, float* values) {
  const F32 d;
  const U32 du;
  const auto below = hn::Set(I32(), static_cast<int32_t>(from - 1));
  size_t kept = 0;
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    const auto v = hn::LoadU(d, values + i);
    const auto index = hn::LoadU(du, indices + i);
    const Squeeze squeeze(d, ToBits(hn::Gt(hn::BitCast(I32(), hn::Abs(v)), below)));
    hn::StoreU(squeeze.of(v), d, values + kept);
    hn::StoreU(squeeze.of(index), du, indices + kept);
    kept += squeeze.found();
  }
  for (; i < count; ++i) {
    const bool keeps = magnitude_key(values[i]) >= from;
    values[kept] = values[i];
    indices[kept] = indices[i];
    kept += keeps ? 1 : 0;
  }
  return kept;
}
#endif

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(CollectBlockOf);
HWY_EXPORT(KeepListed);

Collected collect_block(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                        float* values) {
  return HWY_DYNAMIC_DISPATCH(CollectBlockOf)(block, keys, indices, values);
}
size_t keep_listed(uint32_t from, size_t count, uint32_t* indices, float* values) {
  return HWY_DYNAMIC_DISPATCH(KeepListed)(from, count, indices, values);
}

namespace {

struct Element {
  float v = 0;
  float m = 0;
};

Element element(const CollectBlock& block, size_t i) {
  if (block.of.kept == nullptr) return {.v = block.of.gradient[i]};
  const float kept = block.of.decay * block.of.kept[i];
  if (block.momentum == nullptr)
    return {.v = (block.of.gradient == nullptr ? 0.0F : block.of.gradient[i]) + kept};
  const MomentumStep& step = block.step;
  const float g = step.clip * block.of.gradient[i];
  const float old = block.momentum[i];
  const float m = step.nesterov ? step.momentum * (old + g) : step.momentum * old + g;
  return {.v = kept + (step.nesterov ? m + g : m), .m = m};
}

// Reads each element once, so the checked value is the written value.
bool read_finite_word(const CollectBlock& block, size_t first, size_t end, Element* word) {
  bool finite = true;
  for (size_t i = first; i < end; ++i) {
    word[i - first] = element(block, i);
    finite = finite && magnitude_key(word[i - first].v) < kKeyInfinity;
  }
  return finite;
}

}  // namespace

float collected_element(const CollectBlock& block, size_t i) { return element(block, i).v; }

Collected collect_block_scalar(const CollectBlock& block, CollectKeys keys, uint32_t* indices,
                               float* values) {
  size_t found = 0;
  for (size_t first = 0; first < block.of.count; first += 64) {
    const size_t end = std::min(first + 64, block.of.count);
    std::array<Element, 64> word;
    if (!read_finite_word(block, first, end, word.data())) return {first, found};
    for (size_t i = first; i < end; ++i) {
      const Element one = word[i - first];
      const uint32_t key = magnitude_key(one.v);
      if (block.of.kept != nullptr) block.of.kept[i] = key >= keys.clear_from ? 0 : one.v;
      if (block.momentum != nullptr) block.momentum[i] = one.m;
      if (key < keys.from) continue;
      indices[found] = block.first + static_cast<uint32_t>(i);
      values[found++] = one.v;
    }
  }
  return {block.of.count, found};
}

size_t keep_listed_scalar(uint32_t from, size_t count, uint32_t* indices, float* values) {
  size_t kept = 0;
  for (size_t i = 0; i < count; ++i) {
    if (magnitude_key(values[i]) < from) continue;
    indices[kept] = indices[i];
    values[kept++] = values[i];
  }
  return kept;
}

}  // namespace gradbus
#endif
