#include "compression/kernels/vector/sums.h"

#include <array>
#include <cmath>
#include <utility>

#include "compression/kernels/vector/lanes.h"
#include "compression/kernels/vector/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/vector/sums.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F64 = hn::CappedTag<double, kSumLanes>;
using F32Half = hn::Rebind<float, F64>;  // as many lanes as F64
constexpr size_t kVectors = kSumLanes / hn::MaxLanes(F64());
constexpr size_t kAhead = 1024;  // prefetches this many elements ahead: see signs.cc

HWY_INLINE auto Half(const float* values) { return hn::LoadU(F32Half(), values); }

struct Magnitude {
  const float* values;
  HWY_INLINE hn::Vec<F64> add(size_t i, hn::Vec<F64> sum) const {
    return hn::Add(sum, hn::PromoteTo(F64(), hn::Abs(Half(values + i))));
  }
  HWY_INLINE void prefetch(size_t i) const { gradbus::prefetch(values + i); }
  double at(size_t i) const { return std::abs(static_cast<double>(values[i])); }
};

// Sums gradient + decay * kept; a null gradient means zeros.
template <bool kGradient>
struct SumMagnitude {
  const float* gradient;
  const float* kept;
  float decay;
  HWY_INLINE hn::Vec<F64> add(size_t i, hn::Vec<F64> sum) const {
    const F32Half d;
    const auto old = hn::Mul(Half(kept + i), hn::Set(d, decay));
    const auto fresh = kGradient ? Half(gradient + i) : hn::Zero(d);
    return hn::Add(sum, hn::PromoteTo(F64(), hn::Abs(hn::Add(fresh, old))));
  }
  HWY_INLINE void prefetch(size_t i) const {
    gradbus::prefetch(kept + i);
    if (kGradient) gradbus::prefetch(gradient + i);
  }
  double at(size_t i) const {
    const float v = (kGradient ? gradient[i] : 0.0F) + decay * kept[i];
    return std::abs(static_cast<double>(v));
  }
};

// A product of two f32 is exact in f64, so a fused multiply-add gives the same result.
struct Product {
  const float* a;
  const float* b;
  HWY_INLINE hn::Vec<F64> add(size_t i, hn::Vec<F64> sum) const {
    return hn::MulAdd(hn::PromoteTo(F64(), Half(a + i)), hn::PromoteTo(F64(), Half(b + i)), sum);
  }
  HWY_INLINE void prefetch(size_t) const {}  // short vectors need no prefetch
  double at(size_t i) const { return static_cast<double>(a[i]) * b[i]; }
};

// Indices known to the compiler keep the sums in registers.
template <class Term, size_t... kIndex>
HWY_INLINE double Sum(size_t count, Term term, std::index_sequence<kIndex...>) {
  const F64 d;
  alignas(64) double lanes[kSumLanes];
  hn::Vec<F64> sums[] = {(static_cast<void>(kIndex), hn::Zero(d))...};
  size_t first = 0;
  for (; first + kSumLanes <= count; first += kSumLanes) {
    term.prefetch(first + kAhead);
    ((sums[kIndex] = term.add(first + kIndex * hn::MaxLanes(d), sums[kIndex])), ...);
  }
  (hn::Store(sums[kIndex], d, lanes + kIndex * hn::MaxLanes(d)), ...);
  for (; first < count; ++first) lanes[first % kSumLanes] += term.at(first);
  return tree_sum(lanes);
}
template <class Term>
double Sum(size_t count, Term term) {
  return Sum(count, term, std::make_index_sequence<kVectors>());
}

double SumMagnitudes(const float* values, size_t count) { return Sum(count, Magnitude{values}); }
double SumCompensated(const float* gradient, const float* kept, float decay, size_t count) {
  if (gradient == nullptr) return Sum(count, SumMagnitude<false>{gradient, kept, decay});
  return Sum(count, SumMagnitude<true>{gradient, kept, decay});
}
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
HWY_EXPORT(SumCompensated);
HWY_EXPORT(DotProduct);

double sum_magnitudes(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumMagnitudes)(values, count);
}
double sum_magnitudes(const float* gradient, const float* kept, float decay, size_t count) {
  return HWY_DYNAMIC_DISPATCH(SumCompensated)(gradient, kept, decay, count);
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
double sum_magnitudes_scalar(const float* gradient, const float* kept, float decay, size_t count) {
  return sum_in_order(count, [&](size_t i) {
    const float v = (gradient == nullptr ? 0.0F : gradient[i]) + decay * kept[i];
    return std::abs(static_cast<double>(v));
  });
}
double dot_product_scalar(const float* a, const float* b, size_t count) {
  return sum_in_order(count, [&](size_t i) { return static_cast<double>(a[i]) * b[i]; });
}

}  // namespace gradbus
#endif
