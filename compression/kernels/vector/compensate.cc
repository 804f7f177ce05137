#include "compression/kernels/vector/compensate.h"

#include "common/check.h"
#include "compression/kernels/vector/prefetch.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "compression/kernels/vector/compensate.cc"
#include "hwy/foreach_target.h"  // must come before highway.h
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace gradbus {
namespace HWY_NAMESPACE {
namespace {
namespace hn = hwy::HWY_NAMESPACE;
using F32 = hn::ScalableTag<float>;
using I32 = hn::RebindToSigned<F32>;

constexpr size_t kAhead = 1024;  // measured with blocktopk's norms: 15 % faster

// to[i] = gradient[i] + decay * residual[i]; a null gradient means zeros.
template <bool kFetches>
HWY_INLINE void CompensateVectors(const float* gradient, const float* residual, float decay,
                                  size_t count, float* to) {
  const F32 d;
  const size_t lanes = hn::Lanes(d);
  const auto factor = hn::Set(d, decay);
  size_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    if (kFetches) {
      gradbus::prefetch(residual + i + kAhead);
      if (gradient != nullptr) gradbus::prefetch(gradient + i + kAhead);
    }
    const auto kept = hn::Mul(hn::LoadU(d, residual + i), factor);
    const auto g = gradient == nullptr ? hn::Zero(d) : hn::LoadU(d, gradient + i);
    hn::StoreU(hn::Add(g, kept), d, to + i);
  }
  for (; i < count; ++i) to[i] = (gradient == nullptr ? 0.0F : gradient[i]) + decay * residual[i];
}

void Compensate(const float* gradient, const float* residual, float decay, size_t count,
                float* to) {
  CompensateVectors<false>(gradient, residual, decay, count, to);
}
void CompensateAhead(const float* gradient, const float* residual, float decay, size_t count,
                     float* to) {
  CompensateVectors<true>(gradient, residual, decay, count, to);
}

// The bits of |x|. They are at least those of Inf where x is not finite.
HWY_INLINE hn::Vec<I32> Magnitude(const float* values) {
  return hn::BitCast(I32(), hn::Abs(hn::LoadU(F32(), values)));
}

size_t FirstNotFinite(const float* values, size_t count) {
  const I32 d;
  const size_t lanes = hn::Lanes(d);
  const auto finite = hn::Set(d, 0x7f7fffff);
  size_t i = 0;
  for (; i + 4 * lanes <= count; i += 4 * lanes) {
    const auto first = hn::Max(Magnitude(values + i), Magnitude(values + i + lanes));
    const auto second =
        hn::Max(Magnitude(values + i + 2 * lanes), Magnitude(values + i + 3 * lanes));
    if (HWY_UNLIKELY(!hn::AllFalse(d, hn::Gt(hn::Max(first, second), finite)))) break;
  }
  while (i < count && values[i] - values[i] == 0) ++i;
  return i;
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace gradbus
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace gradbus {

HWY_EXPORT(Compensate);
HWY_EXPORT(CompensateAhead);
HWY_EXPORT(FirstNotFinite);

const float* compensate(const EncodeInput& input, size_t first, size_t count, float* scratch) {
  GRADBUS_CHECK(count <= kBlockElements && first + count <= input.count());
  if (input.residual.empty()) return input.gradient.data() + first;
  const float* gradient = input.gradient.empty() ? nullptr : input.gradient.data() + first;
  HWY_DYNAMIC_DISPATCH(Compensate)
  (gradient, input.residual.data() + first, input.decay, count, scratch);
  return scratch;
}

const float* compensate_ahead(const EncodeInput& input, size_t first, size_t count,
                              float* scratch) {
  GRADBUS_CHECK(count <= kBlockElements && first + count <= input.count());
  if (input.residual.empty()) return input.gradient.data() + first;
  const float* gradient = input.gradient.empty() ? nullptr : input.gradient.data() + first;
  HWY_DYNAMIC_DISPATCH(CompensateAhead)
  (gradient, input.residual.data() + first, input.decay, count, scratch);
  return scratch;
}

size_t first_not_finite(const float* values, size_t count) {
  return HWY_DYNAMIC_DISPATCH(FirstNotFinite)(values, count);
}

}  // namespace gradbus
#endif
