// reduce() for one SIMD target. Included once per target by foreach_target.h (toggled guard). Plain
// pointers only: a std:: template first used here would be compiled for this target and could be
// the copy the linker keeps for everybody.
//
// The sums of a block of elements stay in four registers while all sources are added, in their
// order; then the block goes to every target. So each source is read and each target written once,
// in place or not, and the bits are those of reduce_scalar().

#if defined(GRADBUS_COMMON_KERNELS_REDUCE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMMON_KERNELS_REDUCE_INL_H_
#undef GRADBUS_COMMON_KERNELS_REDUCE_INL_H_
#else
#define GRADBUS_COMMON_KERNELS_REDUCE_INL_H_
#endif

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "common/dtype.h"
#include "common/kernels/half_inl.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
namespace {
namespace {

struct Job {
  const std::byte* const* sources;
  size_t source_count;
  std::byte* const* targets;
  size_t target_count;
  size_t count;
  uint32_t divisor;
};

// ---- element types: lanes of the sum, and how a vector of them is loaded and stored -----------

template <typename T>
struct Plain {
  using Lane = T;
  using Tag = hn::ScalableTag<T>;
  static constexpr size_t kBytes = sizeof(T);
  static HWY_INLINE hn::Vec<Tag> load(const std::byte* from) {
    const hn::Repartition<uint8_t, Tag> bytes;
    return hn::BitCast(Tag(), hn::LoadU(bytes, reinterpret_cast<const uint8_t*>(from)));
  }
  static HWY_INLINE void store(hn::Vec<Tag> values, std::byte* to) {
    const hn::Repartition<uint8_t, Tag> bytes;
    hn::StoreU(hn::BitCast(bytes, values), bytes, reinterpret_cast<uint8_t*>(to));
  }
};

template <typename T>
struct Float : Plain<T> {
  static constexpr bool kFloat = true;
};

template <typename T>
struct Integer : Plain<T> {
  static constexpr bool kFloat = false;
};

struct F16 : Float<float> {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE F32Vec load(const std::byte* from) { return widen_f16(load_halves(from)); }
  static HWY_INLINE void store(F32Vec sum, std::byte* to) { store_halves(narrow_f16(sum), to); }
};

struct BF16 : Float<float> {
  static constexpr size_t kBytes = 2;
  static HWY_INLINE F32Vec load(const std::byte* from) { return widen_bf16(load_halves(from)); }
  static HWY_INLINE void store(F32Vec sum, std::byte* to) {
    store_halves(narrow_bf16_sum(sum), to);
  }
};

// ---- a block of sums, held in registers -------------------------------------------------------

template <typename Element>
struct Block {
  using Tag = typename Element::Tag;
  using Lane = typename Element::Lane;
  using Vec = hn::Vec<Tag>;
  static constexpr size_t kVectors = 4;
  static constexpr size_t kElements = kVectors * HWY_LANES(Lane);
  static constexpr size_t kBytes = kElements * Element::kBytes;  // of one source or target
  static constexpr size_t kStep = kBytes / kVectors;

  HWY_INLINE void load(const std::byte* from) {
    v0 = Element::load(from);
    v1 = Element::load(from + kStep);
    v2 = Element::load(from + 2 * kStep);
    v3 = Element::load(from + 3 * kStep);
  }
  HWY_INLINE void add(const std::byte* from) {
    v0 = hn::Add(v0, Element::load(from));
    v1 = hn::Add(v1, Element::load(from + kStep));
    v2 = hn::Add(v2, Element::load(from + 2 * kStep));
    v3 = hn::Add(v3, Element::load(from + 3 * kStep));
  }
  HWY_INLINE void scale(Lane factor) {
    const Vec factors = hn::Set(Tag(), factor);
    v0 = hn::Mul(v0, factors);
    v1 = hn::Mul(v1, factors);
    v2 = hn::Mul(v2, factors);
    v3 = hn::Mul(v3, factors);
  }
  HWY_INLINE void store(std::byte* to) const {
    Element::store(v0, to);
    Element::store(v1, to + kStep);
    Element::store(v2, to + 2 * kStep);
    Element::store(v3, to + 3 * kStep);
  }

  Vec v0, v1, v2, v3;
};

// Highway has no integer division; averages of integers are rare enough for a plain loop.
template <typename Element>
HWY_NOINLINE void divide_integers(Block<Element>& sum, uint32_t divisor) {
  using Lane = typename Element::Lane;
  Lane lanes[Block<Element>::kElements];
  sum.store(reinterpret_cast<std::byte*>(lanes));
  for (Lane& lane : lanes) lane = static_cast<Lane>(int64_t{lane} / int64_t{divisor});
  sum.load(reinterpret_cast<const std::byte*>(lanes));
}

template <typename Element>
HWY_INLINE void divide(Block<Element>& sum, uint32_t divisor) {
  using Lane = typename Element::Lane;
  if constexpr (Element::kFloat) {
    sum.scale(Lane{1} / static_cast<Lane>(divisor));
  } else if (divisor != 1) {
    divide_integers(sum, divisor);
  }
}

// ---- the loops --------------------------------------------------------------------------------

// All whole blocks; returns the elements done. The hardware prefetcher loses count from about eight
// vectors on, so each block asks for the next one: 16 sources of 32 MiB run at 50 instead of 35
// GB/s.
template <typename Element>
size_t reduce_blocks(const Job& job) {
  constexpr size_t kBytes = Block<Element>::kBytes;
  const size_t blocks = job.count / Block<Element>::kElements;
  for (size_t at = 0; at < blocks * kBytes; at += kBytes) {
    Block<Element> sum;
    sum.load(job.sources[0] + at);
    for (size_t s = 1; s < job.source_count; ++s) {
      const std::byte* const from = job.sources[s] + at;
      for (size_t line = 0; line < kBytes; line += 64) __builtin_prefetch(from + kBytes + line);
      sum.add(from);
    }
    divide(sum, job.divisor);
    for (size_t t = 0; t < job.target_count; ++t) sum.store(job.targets[t] + at);
  }
  return blocks * Block<Element>::kElements;
}

// The two ranks of a node, or a ring step in place: every pointer in a register.
template <typename Element, bool kTwoTargets>
size_t reduce_pair(const Job& job) {
  constexpr size_t kBytes = Block<Element>::kBytes;
  const size_t blocks = job.count / Block<Element>::kElements;
  const std::byte* const first = job.sources[0];
  const std::byte* const second = job.sources[1];
  std::byte* const near = job.targets[0];
  std::byte* const far = job.targets[kTwoTargets ? 1 : 0];
  for (size_t at = 0; at < blocks * kBytes; at += kBytes) {
    Block<Element> sum;
    sum.load(first + at);
    sum.add(second + at);
    divide(sum, job.divisor);
    sum.store(near + at);
    if (kTwoTargets) sum.store(far + at);
  }
  return blocks * Block<Element>::kElements;
}

// What is left, less than a block, by way of a padded one.
template <typename Element>
void reduce_rest(const Job& job, size_t begin) {
  const size_t at = begin * Element::kBytes;
  const size_t bytes = (job.count - begin) * Element::kBytes;
  alignas(HWY_MAX_BYTES) std::byte padded[Block<Element>::kBytes] = {};
  Block<Element> sum;
  std::memcpy(padded, job.sources[0] + at, bytes);
  sum.load(padded);
  for (size_t s = 1; s < job.source_count; ++s) {
    std::memcpy(padded, job.sources[s] + at, bytes);
    sum.add(padded);
  }
  divide(sum, job.divisor);
  sum.store(padded);
  for (size_t t = 0; t < job.target_count; ++t) std::memcpy(job.targets[t] + at, padded, bytes);
}

template <typename Element>
size_t reduce_whole_blocks(const Job& job) {
  if (job.source_count != 2 || job.target_count > 2) return reduce_blocks<Element>(job);
  return job.target_count == 1 ? reduce_pair<Element, false>(job) : reduce_pair<Element, true>(job);
}

template <typename Element>
void reduce_elements(const Job& job) {
  const size_t done = reduce_whole_blocks<Element>(job);
  if (done < job.count) reduce_rest<Element>(job, done);
}

HWY_NOINLINE void reduce_on_target(DType dtype, const std::byte* const* sources,
                                   size_t source_count, std::byte* const* targets,
                                   size_t target_count, size_t count, uint32_t divisor) {
  const Job job = {sources, source_count, targets, target_count, count, divisor};
  switch (dtype) {
    case DType::kF32: return reduce_elements<Float<float>>(job);
    case DType::kF64: return reduce_elements<Float<double>>(job);
    case DType::kF16: return reduce_elements<F16>(job);
    case DType::kBF16: return reduce_elements<BF16>(job);
    case DType::kI32: return reduce_elements<Integer<int32_t>>(job);
    case DType::kI64: return reduce_elements<Integer<int64_t>>(job);
    case DType::kU8: return reduce_elements<Integer<uint8_t>>(job);
  }
}

}  // namespace
}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // toggled guard
