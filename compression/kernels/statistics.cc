#include "compression/kernels/statistics.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/statistics.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

#include "compression/kernels/vector_inl.h"

#ifndef GRADBUS_STATISTICS_SCALAR
#define GRADBUS_STATISTICS_SCALAR
namespace gradbus {
namespace {

constexpr size_t kSumLanes = 16;
using SumLanes = std::array<double, kSumLanes>;

uint32_t magnitude_bits(float value) { return std::bit_cast<uint32_t>(value) & 0x7fffffff; }

void add_squares(std::span<const float> values, SumLanes& lanes) {
  for (size_t i = 0; i < values.size(); ++i)
    lanes[i % kSumLanes] += static_cast<double>(values[i]) * values[i];
}

double total(SumLanes& lanes) {
  for (size_t half = kSumLanes / 2; half > 0; half /= 2)
    for (size_t j = 0; j < half; ++j) lanes[j] += lanes[j + half];
  return lanes[0];
}

}  // namespace
}  // namespace gradbus
#endif

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {

#if GRADBUS_WITHOUT_VECTORS

void LargestMagnitudes(std::span<const float> values, size_t bucket, uint32_t* bits) {
  largest_magnitudes_scalar(values, bucket, bits);
}

double SumOfSquares(std::span<const float> values) { return sum_of_squares_scalar(values); }

#else

hn::Vec<I32> magnitudes(const float* values) {
  return hn::BitCast(I32(), hn::Abs(hn::LoadU(F32(), values)));
}

uint32_t largest_of(const float* values, size_t count) {
  const I32 d;
  auto even = hn::Zero(d);
  auto odd = hn::Zero(d);
  size_t i = 0;
  for (; i + 2 * kLanes <= count; i += 2 * kLanes) {
    even = hn::Max(even, magnitudes(values + i));
    odd = hn::Max(odd, magnitudes(values + i + kLanes));
  }
  auto largest = static_cast<uint32_t>(hn::GetLane(hn::MaxOfLanes(d, hn::Max(even, odd))));
  for (; i < count; ++i) largest = std::max(largest, magnitude_bits(values[i]));
  return largest;
}

void LargestMagnitudes(std::span<const float> values, size_t bucket, uint32_t* bits) {
  for (size_t at = 0; at < values.size(); at += bucket)
    *bits++ = largest_of(values.data() + at, std::min(bucket, values.size() - at));
}

using F64 = hn::CappedTag<double, kSumLanes>;
using F64Vec = hn::Vec<F64>;
constexpr size_t kDoubles = hn::MaxLanes(F64());

// Returns how many elements it added: whole rounds over the lanes. Indices known to the compiler
// keep the sums in registers.
template <size_t... kIndex>
size_t add_rounds(std::span<const float> values, SumLanes& lanes, std::index_sequence<kIndex...>) {
  const F64 d;
  const hn::Rebind<float, F64> narrow;
  F64Vec sums[] = {hn::LoadU(d, lanes.data() + kIndex * kDoubles)...};
  const auto add = [&](F64Vec sum, const float* from) HWY_ATTR {
    const F64Vec value = hn::PromoteTo(d, hn::LoadU(narrow, from));
    return hn::Add(sum, hn::Mul(value, value));
  };
  size_t i = 0;
  for (; i + kSumLanes <= values.size(); i += kSumLanes)
    ((sums[kIndex] = add(sums[kIndex], values.data() + i + kIndex * kDoubles)), ...);
  (hn::StoreU(sums[kIndex], d, lanes.data() + kIndex * kDoubles), ...);
  return i;
}

double SumOfSquares(std::span<const float> values) {
  SumLanes lanes{};
  const size_t done = add_rounds(values, lanes, std::make_index_sequence<kSumLanes / kDoubles>());
  add_squares(values.subspan(done), lanes);
  return total(lanes);
}

#endif  // GRADBUS_WITHOUT_VECTORS

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(LargestMagnitudes);
HWY_EXPORT(SumOfSquares);

void largest_magnitudes_scalar(std::span<const float> values, size_t bucket, uint32_t* bits) {
  for (size_t at = 0; at < values.size(); at += bucket) {
    uint32_t largest = 0;
    for (const float value : values.subspan(at, std::min(bucket, values.size() - at)))
      largest = std::max(largest, magnitude_bits(value));
    *bits++ = largest;
  }
}

double sum_of_squares_scalar(std::span<const float> values) {
  SumLanes lanes{};
  add_squares(values, lanes);
  return total(lanes);
}

void largest_magnitudes(std::span<const float> values, size_t bucket, uint32_t* bits) {
  HWY_DYNAMIC_DISPATCH(LargestMagnitudes)(values, bucket, bits);
}

double sum_of_squares(std::span<const float> values) {
  return HWY_DYNAMIC_DISPATCH(SumOfSquares)(values);
}

}  // namespace gradbus
#endif
