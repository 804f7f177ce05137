// The loop of take_statistics(), one stride at a time, for one SIMD target. quantize.cc runs it for
// the next bucket while it encodes one. Included once per target, like vector_inl.h.

#if defined(GRADBUS_COMPRESSION_KERNELS_STATISTICS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef GRADBUS_COMPRESSION_KERNELS_STATISTICS_INL_H_
#undef GRADBUS_COMPRESSION_KERNELS_STATISTICS_INL_H_
#else
#define GRADBUS_COMPRESSION_KERNELS_STATISTICS_INL_H_
#endif

#include <utility>

#include "compression/kernels/vector/bucket_sums.h"
#include "compression/kernels/vector/statistics.h"
#include "compression/kernels/vector/vector_inl.h"

#if !GRADBUS_WITHOUT_VECTORS

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {

using F64 = hn::CappedTag<double, kSquareLanes>;
using F64Vec = hn::Vec<F64>;
inline constexpr size_t kDoubles = hn::MaxLanes(F64());
inline constexpr size_t kStride = kSquareLanes;

// ---- v from a gradient, from something kept, or from both

struct GradientOnly {
  static const float* taken(const StatisticsRun& run) { return run.gradient; }
  static HWY_INLINE F32Vec take(const StatisticsRun& run, size_t i) {
    return hn::LoadU(F32(), run.gradient + i);
  }
};
struct KeptOnly {
  static const float* taken(const StatisticsRun& run) { return run.v; }
  static HWY_INLINE F32Vec take(const StatisticsRun& run, size_t i) {
    const F32 d;
    const auto kept = hn::Mul(hn::LoadU(d, run.kept + i), hn::Set(d, run.decay));
    const F32Vec v = hn::Add(hn::Zero(d), kept);
    hn::StoreU(v, d, run.v + i);
    return v;
  }
};
struct Both {
  static const float* taken(const StatisticsRun& run) { return run.v; }
  static HWY_INLINE F32Vec take(const StatisticsRun& run, size_t i) {
    const F32 d;
    const auto kept = hn::Mul(hn::LoadU(d, run.kept + i), hn::Set(d, run.decay));
    const F32Vec v = hn::Add(hn::LoadU(d, run.gradient + i), kept);
    hn::StoreU(v, d, run.v + i);
    return v;
  }
};

struct LargestOnly {
  static constexpr bool kLargest = true;
  static constexpr bool kSquares = false;
};
struct SquaresOnly {
  static constexpr bool kLargest = false;
  static constexpr bool kSquares = true;
};
struct LargestAndSquares {
  static constexpr bool kLargest = true;
  static constexpr bool kSquares = true;
};

// Adds the squares of as many elements as F64 has lanes. They are exact in f64, so a fused
// multiply-add gives the same result.
HWY_INLINE F64Vec add_squares(const float* from, F64Vec sum) {
  const F64Vec value = hn::PromoteTo(F64(), hn::LoadU(hn::Rebind<float, F64>(), from));
  return hn::MulAdd(value, value, sum);
}

// The statistics of one bucket, in registers. That requires indices known to the compiler.
template <class Source, class Asked, class Indices = std::make_index_sequence<kStride / kLanes>>
class Taker;

template <class Source, class Asked, size_t... kIndex>
class Taker<Source, Asked, std::index_sequence<kIndex...>> {
 public:
  HWY_INLINE Taker() = default;

  // Adds the stride at `i`.
  HWY_INLINE void take(const StatisticsRun& run, size_t i) { (take_vector<kIndex>(run, i), ...); }

  // Writes the lanes to a bucket that has elements left.
  HWY_INLINE void put(BucketSums& of) {
    of.largest = largest();
    if constexpr (Asked::kSquares)
      ((hn::StoreU(sums_[2 * kIndex], F64(), of.lanes + 2 * kIndex * kDoubles),
        hn::StoreU(sums_[2 * kIndex + 1], F64(), of.lanes + (2 * kIndex + 1) * kDoubles)),
       ...);
  }

  HWY_INLINE uint32_t largest() {
    for (size_t i = 1; i < kMaxima; ++i) largest_[0] = hn::Max(largest_[0], largest_[i]);
    return static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(I32(), largest_[0])));
  }

  // Adds the lanes as tree_sum() does, halves first. Call it once.
  HWY_INLINE double squares() {
    fold<kVectors>();
    alignas(64) double lanes[kDoubles];
    hn::Store(sums_[0], F64(), lanes);
    return tree_sum<kDoubles>(lanes);
  }

 private:
  static constexpr size_t kVectors = sizeof...(kIndex);
  // AVX2 has 16 registers, and the sums use eight.
  static constexpr size_t kMaxima = Asked::kSquares ? 2 : kVectors;
  static_assert(kVectors >= 2);

  template <size_t kWidth>
  HWY_INLINE void fold() {
    fold_by(std::make_index_sequence<kWidth>());
    if constexpr (kWidth > 1) fold<kWidth / 2>();
  }
  template <size_t... kAt>
  HWY_INLINE void fold_by(std::index_sequence<kAt...>) {
    ((sums_[kAt] = hn::Add(sums_[kAt], sums_[kAt + sizeof...(kAt)])), ...);
  }

  template <size_t kAt>
  HWY_INLINE void take_vector(const StatisticsRun& run, size_t i) {
    const I32 d;
    const F32Vec v = Source::take(run, i + kAt * kLanes);
    if constexpr (Asked::kLargest)
      largest_[kAt % kMaxima] = hn::Max(largest_[kAt % kMaxima], hn::BitCast(d, hn::Abs(v)));
    if constexpr (!Asked::kSquares) return;
    constexpr size_t kSum = 2 * kAt;
    const float* const from = Source::taken(run) + i + kAt * kLanes;
    sums_[kSum] = add_squares(from, sums_[kSum]);
    sums_[kSum + 1] = add_squares(from + kDoubles, sums_[kSum + 1]);
  }

  hn::Vec<I32> largest_[kVectors] = {(static_cast<void>(kIndex), hn::Zero(I32()))...};
  F64Vec sums_[2 * kVectors] = {
      (static_cast<void>(kIndex), hn::Zero(F64()))...,
      (static_cast<void>(kIndex), hn::Zero(F64()))...,
  };
};

}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#endif  // !GRADBUS_WITHOUT_VECTORS
#endif  // toggled guard
