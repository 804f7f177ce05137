#include "compression/kernels/sums.h"

#include <array>
#include <cmath>

#include "compression/kernels/lanes.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/sums.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F64 = hn::CappedTag<double, kSumLanes>;
using F32Half = hn::Rebind<float, F64>;  // as many lanes as F64
constexpr size_t kStretch = 128;         // elements whose lanes stay in a register
constexpr size_t kAhead = 1024;  // memory is called up this many elements early: see signs.cc

HWY_INLINE auto Wide(const float* values) {
  return hn::PromoteTo(F64(), hn::LoadU(F32Half(), values));
}

struct Magnitude {
  const float* values;
  HWY_INLINE hn::Vec<F64> operator()(size_t i) const { return hn::Abs(Wide(values + i)); }
  HWY_INLINE void call_up(size_t i) const { hwy::Prefetch(values + i); }
  double at(size_t i) const { return std::abs(static_cast<double>(values[i])); }
};

struct Product {
  const float* a;
  const float* b;
  HWY_INLINE hn::Vec<F64> operator()(size_t i) const { return hn::Mul(Wide(a + i), Wide(b + i)); }
  HWY_INLINE void call_up(size_t) const {}  // vectors that are short
  double at(size_t i) const { return static_cast<double>(a[i]) * b[i]; }
};

// Lanes wait in memory between stretches; within one, a few of them at a time are in a register.
template <class Term>
HWY_INLINE double Sum(size_t count, Term term) {
  const F64 d;
  alignas(64) double lanes[kSumLanes] = {};
  size_t first = 0;
  for (; first + kStretch <= count; first += kStretch) {
    for (size_t i = 0; i < kStretch; i += 16) term.call_up(first + kAhead + i);
    for (size_t l = 0; l < kSumLanes; l += hn::Lanes(d)) {
      auto sum = hn::LoadU(d, lanes + l);
      for (size_t i = l; i < kStretch; i += kSumLanes) sum = hn::Add(sum, term(first + i));
      hn::StoreU(sum, d, lanes + l);
    }
  }
  for (; first < count; ++first) lanes[first % kSumLanes] += term.at(first);
  return tree_sum(lanes);
}

double SumMagnitudes(const float* values, size_t count) { return Sum(count, Magnitude{values}); }
double DotProduct(const float* a, const float* b, size_t count) {
  return Sum(count, Product{a, b});
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(SumMagnitudes);
HWY_EXPORT(DotProduct);

double sum_magnitudes(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumMagnitudes)(values, count);
}
double dot_product(const float* a, const float* b, size_t count) {
  return HWY_DYNAMIC_DISPATCH(DotProduct)(a, b, count);
}

namespace {
template <typename Term>
double sum_in_order(size_t count, Term term) {
  std::array<double, kSumLanes> lanes{};
  for (size_t i = 0; i < count; ++i) lanes[i % kSumLanes] += term(i);
  return tree_sum(lanes.data());
}
}  // namespace

double sum_magnitudes_scalar(const float* values, size_t count) {
  return sum_in_order(count, [&](size_t i) { return std::abs(static_cast<double>(values[i])); });
}
double dot_product_scalar(const float* a, const float* b, size_t count) {
  return sum_in_order(count, [&](size_t i) { return static_cast<double>(a[i]) * b[i]; });
}

}  // namespace gradbus
#endif
