#include "compression/kernels/vector/statistics.h"

#include <algorithm>

#include "compression/kernels/vector/bucket_sums.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/vector/statistics.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#include "compression/kernels/vector/statistics_inl.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_WITHOUT_VECTORS

void TakeStatistics(const StatisticsRun& run, uint32_t* largest, double* squares) {
  take_statistics_scalar(run, largest, squares);
}

#else

template <class Source, class Asked>
void TakeFrom(const StatisticsRun& whole, uint32_t* largest, double* squares) {
  const StatisticsRun run = whole;  // a copy that stores to `v` cannot change
  for (size_t first = 0; first < run.count; first += run.bucket) {
    const size_t end = std::min(first + run.bucket, run.count);
    Taker<Source, Asked> taker;
    size_t at = first;
    for (; at + kStride <= end; at += kStride) taker.take(run, at);
    if (HWY_LIKELY(at == end)) {
      if constexpr (Asked::kLargest) *largest++ = taker.largest();
      if constexpr (Asked::kSquares) *squares++ = taker.squares();
      continue;
    }
    BucketSums of;
    taker.put(of);
    of.add(run, first, at, end);
    if constexpr (Asked::kLargest) *largest++ = of.largest;
    if constexpr (Asked::kSquares) *squares++ = of.squares();
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
    if (squares != nullptr) *squares++ = of.squares();
  }
}

void take_statistics(const StatisticsRun& run, uint32_t* largest, double* squares) {
  HWY_DYNAMIC_DISPATCH(TakeStatistics)(run, largest, squares);
}

}  // namespace gradbus
#endif
