#include "compression/kernels/statistics.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "compression/kernels/lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/statistics.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#include "compression/kernels/vector_inl.h"

#ifndef GRADBUS_STATISTICS_SCALAR
#define GRADBUS_STATISTICS_SCALAR
namespace gradbus {
namespace {

// Elements [at, end) of a bucket that begins at `first`, one at a time.
struct BucketSums {
  uint32_t largest = 0;
  alignas(64) double lanes[kSumLanes] = {};

  void add(const StatisticsRun& run, size_t first, size_t at, size_t end) {
    for (; at < end; ++at) {
      float v = run.gradient == nullptr ? 0.0F : run.gradient[at];
      if (run.kept != nullptr) run.v[at] = v = v + run.decay * run.kept[at];
      largest = std::max(largest, std::bit_cast<uint32_t>(v) & 0x7fffffff);
      lanes[(at - first) % kSumLanes] += static_cast<double>(v) * v;
    }
  }
};

}  // namespace
}  // namespace gradbus
#endif

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_WITHOUT_VECTORS

void TakeStatistics(const StatisticsRun& run, uint32_t* largest, double* squares) {
  take_statistics_scalar(run, largest, squares);
}

#else

using F64 = hn::CappedTag<double, kSumLanes>;
using F64Vec = hn::Vec<F64>;
constexpr size_t kDoubles = hn::MaxLanes(F64());
constexpr size_t kStride = 2 * kSumLanes;

// ---- v, which has a gradient, something kept, or both

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

// Adds the squares of as many elements as F64 has lanes, exact in f64, so that one rounding or two
// are the same.
HWY_INLINE F64Vec add_squares(const float* from, F64Vec sum) {
  const F64Vec value = hn::PromoteTo(F64(), hn::LoadU(hn::Rebind<float, F64>(), from));
  return hn::MulAdd(value, value, sum);
}

// The bucket [at, end) as far as whole strides go; returns where the rest begins. Indices known to
// the compiler keep the sums in registers.
template <class Source, class Asked, size_t... kIndex>
HWY_INLINE size_t add_strides(const StatisticsRun& run, size_t at, size_t end, BucketSums& of,
                              std::index_sequence<kIndex...>) {
  const I32 d;
  constexpr size_t kVectors = sizeof...(kIndex);  // of a stride, which goes over the lanes twice
  hn::Vec<I32> largest[] = {(static_cast<void>(kIndex), hn::Zero(d))...};
  F64Vec sums[] = {(static_cast<void>(kIndex), hn::Zero(F64()))...};
  const auto take = [&]<size_t kAt>(size_t i) HWY_ATTR {
    const F32Vec v = Source::take(run, i + kAt * kLanes);
    if constexpr (Asked::kLargest) largest[kAt] = hn::Max(largest[kAt], hn::BitCast(d, hn::Abs(v)));
    if constexpr (!Asked::kSquares) return;
    constexpr size_t kSum = 2 * kAt % kVectors;
    const float* const from = Source::taken(run) + i + kAt * kLanes;
    sums[kSum] = add_squares(from, sums[kSum]);
    sums[kSum + 1] = add_squares(from + kDoubles, sums[kSum + 1]);
  };
  for (; at + kStride <= end; at += kStride) (take.template operator()<kIndex>(at), ...);
  for (size_t i = 1; i < kVectors; ++i) largest[0] = hn::Max(largest[0], largest[i]);
  of.largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, largest[0])));
  if constexpr (Asked::kSquares)
    (hn::StoreU(sums[kIndex], F64(), of.lanes + kIndex * kDoubles), ...);
  return at;
}

template <class Source, class Asked>
void TakeFrom(const StatisticsRun& whole, uint32_t* largest, double* squares) {
  const StatisticsRun run = whole;  // which stores to `v` cannot change
  for (size_t first = 0; first < run.count; first += run.bucket) {
    const size_t end = std::min(first + run.bucket, run.count);
    BucketSums of;
    const size_t at = add_strides<Source, Asked>(run, first, end, of,
                                                 std::make_index_sequence<kStride / kLanes>());
    if (at < end) of.add(run, first, at, end);
    if constexpr (Asked::kLargest) *largest++ = of.largest;
    if constexpr (Asked::kSquares) *squares++ = tree_sum(of.lanes);
  }
}

template <class Source>
void TakeFrom(const StatisticsRun& run, uint32_t* largest, double* squares) {
  if (squares == nullptr) return TakeFrom<Source, LargestOnly>(run, largest, squares);
  if (largest == nullptr) return TakeFrom<Source, SquaresOnly>(run, largest, squares);
  TakeFrom<Source, LargestAndSquares>(run, largest, squares);
}

void TakeStatistics(const StatisticsRun& run, uint32_t* largest, double* squares) {
  if (run.kept == nullptr) return TakeFrom<GradientOnly>(run, largest, squares);
  if (run.gradient == nullptr) return TakeFrom<KeptOnly>(run, largest, squares);
  return TakeFrom<Both>(run, largest, squares);
}

#endif  // GRADBUS_WITHOUT_VECTORS

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(TakeStatistics);

void take_statistics_scalar(const StatisticsRun& run, uint32_t* largest, double* squares) {
  for (size_t first = 0; first < run.count; first += run.bucket) {
    BucketSums of;
    of.add(run, first, first, std::min(first + run.bucket, run.count));
    if (largest != nullptr) *largest++ = of.largest;
    if (squares != nullptr) *squares++ = tree_sum(of.lanes);
  }
}

void take_statistics(const StatisticsRun& run, uint32_t* largest, double* squares) {
  HWY_DYNAMIC_DISPATCH(TakeStatistics)(run, largest, squares);
}

}  // namespace gradbus
#endif
