#include "compression/codecs/bucket_scale.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

namespace gradbus {
namespace {

constexpr BucketScale kNotFinite{std::numeric_limits<float>::quiet_NaN(), 0};
constexpr uint32_t kTwoTo127 = 0x7f000000;

double bound_of(const QuantizerOptions& options, const BucketStatistics& statistics) {
  if (options.bound == Bound::kNorm) return std::sqrt(statistics.squares);
  const double largest = std::bit_cast<float>(statistics.largest);
  if (options.bound == Bound::kLargest || !std::isfinite(largest)) return largest;
  // The paper takes sigma about the mean, which is near 0 for gradients. About 0, a bucket of equal
  // elements is not clipped to nothing, nor is a bucket of one element.
  const double mean_square = statistics.squares / static_cast<double>(statistics.count);
  return std::min(largest, options.clip * std::sqrt(mean_square));
}

BucketScale linear_scale(double bound, float top) {
  const auto step = static_cast<float>(bound / top);
  if (!std::isfinite(step * top)) return kNotFinite;
  if (step < kStepMin) return {};
  return {step, static_cast<float>(top / bound)};
}

BucketScale power_scale(uint32_t largest) {
  if (largest >= kTwoTo127) return kNotFinite;
  if (largest == 0) return {};
  const uint32_t exponent = (largest >> 23) + 1;
  return {std::bit_cast<float>(exponent << 23), std::ldexp(1.0F, 127 - static_cast<int>(exponent))};
}

}  // namespace

bool asks_for_largest(const QuantizerOptions& options) { return options.bound != Bound::kNorm; }

bool asks_for_squares(const QuantizerOptions& options) {
  return options.bound == Bound::kNorm || options.bound == Bound::kClipped;
}

BucketScale scale_of(const QuantizerOptions& options, const BucketStatistics& statistics) {
  if (options.bound == Bound::kPowerOfTwo) return power_scale(statistics.largest);
  return linear_scale(bound_of(options, statistics), options.top);
}

}  // namespace gradbus
