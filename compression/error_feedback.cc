#include "compression/error_feedback.h"

#include <algorithm>
#include <cmath>

#include "compression/kernels/vector/compensate.h"
#include "compression/kernels/vector/momentum.h"
#include "compression/kernels/vector/sums.h"
#include "compression/payload.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

ErrorFeedbackKind kind_of(const CompressionSpec& spec) {
  const std::string& name = spec.options.text("ef");
  if (name == "none") return ErrorFeedbackKind::kNone;
  if (name == "residual") return ErrorFeedbackKind::kResidual;
  if (name == "dgc" || spec.codec->id == CodecId::kDgc) return ErrorFeedbackKind::kDgc;
  return spec.codec->traits.wants_feedback ? ErrorFeedbackKind::kResidual
                                           : ErrorFeedbackKind::kNone;
}

// The factor that clips the gradient to `norm_max` (as in DGC's public code, including the 1e-6).
float clip_factor(std::span<const float> gradient, float norm_max) {
  if (norm_max <= 0) return 1;
  const double norm = std::sqrt(dot_product(gradient.data(), gradient.data(), gradient.size()));
  return static_cast<float>(std::min(1.0, norm_max / (norm + 1e-6)));
}

// Partitions of up to this many elements are checked before anything is written, because the second
// read comes from the cache. For longer partitions the write is undone, which leaves a rounding
// error. As in codecs/compensated_partition.h.
constexpr size_t kLookFirst = size_t{1} << 20;

// Three vectors, and the prefetched parts of them, share 32 KiB of L1.
constexpr size_t kTakenElements = 512;

bool all_finite(std::span<const float> values) {
  return first_not_finite(values.data(), values.size()) == values.size();
}

enum class Taken : uint8_t { kNot, kWhole, kOverflowed };

// Accumulates the gradient block by block. Returns kNot, with the state unchanged, if it has a NaN
// or Inf. A block of the residual is in the cache when it is checked.
Taken take_in(const MomentumStep& step, std::span<const float> gradient, std::span<float> momentum,
              std::span<float> residual) {
  const size_t count = gradient.size();
  Taken taken = Taken::kWhole;
  if (count <= kLookFirst && !all_finite(gradient)) return Taken::kNot;
  for (size_t first = 0; first < count; first += kTakenElements) {
    const size_t n = std::min(kTakenElements, count - first);
    if (count > kLookFirst && !all_finite(gradient.subspan(first, n))) {
      undo_momentum(step, gradient.first(first), momentum, residual);
      return Taken::kNot;
    }
    accumulate_momentum(step, gradient.subspan(first, n), momentum.subspan(first, n),
                        residual.subspan(first, n));
    if (!all_finite(residual.subspan(first, n))) taken = Taken::kOverflowed;
  }
  return taken;
}

}  // namespace

ErrorFeedbackOptions error_feedback_options(const CompressionSpec& spec, uint32_t agents) {
  ErrorFeedbackOptions options;
  options.kind = kind_of(spec);
  options.decay = static_cast<float>(spec.options.number("decay"));
  options.momentum = static_cast<float>(spec.options.number("momentum"));
  options.nesterov = spec.options.text("nesterov") == "yes";
  options.masking = spec.options.text("masking") == "yes";
  options.clip_norm =
      static_cast<float>(spec.options.number("clip") / std::sqrt(static_cast<double>(agents)));
  options.codec_takes_momentum = spec.codec->traits.takes_momentum;
  return options;
}

bool remembers(const CompressionSpec& spec) {
  return spec.codec->traits.has_state || kind_of(spec) != ErrorFeedbackKind::kNone;
}

ErrorFeedback::ErrorFeedback(const ErrorFeedbackOptions& options, size_t count)
    : options_(options),
      residual_(options.kind == ErrorFeedbackKind::kNone ? 0 : count),
      momentum_(options.kind == ErrorFeedbackKind::kDgc ? count : 0) {}

EncodeInput ErrorFeedback::compensate(std::span<const float> gradient, uint64_t seed,
                                      uint64_t round) {
  EncodeInput input{.gradient = gradient, .seed = seed, .round = round};
  if (options_.kind == ErrorFeedbackKind::kNone) return input;
  input.residual = residual_;
  input.decay = options_.decay;
  // The codec detects values that are not finite in the gradient, and does not change the residual.
  if (options_.kind != ErrorFeedbackKind::kDgc) return input;
  const MomentumStep step{.momentum = options_.momentum,
                          .nesterov = options_.nesterov,
                          .clip = clip_factor(gradient, options_.clip_norm),
                          .decay = options_.decay};
  if (options_.codec_takes_momentum) {
    input.momentum = momentum_;
    input.step = step;
    return input;
  }
  const Taken taken = take_in(step, gradient, momentum_, residual_);
  overflowed_ = taken == Taken::kOverflowed;
  if (taken == Taken::kNot) return input;
  input.gradient = {};
  input.decay = 1;
  return input;
}

void ErrorFeedback::update(const Codec& codec, std::span<const std::byte> payload) {
  if (options_.kind != ErrorFeedbackKind::kDgc) return;
  if (options_.masking) codec.clear_sent(payload, momentum_);
  if (overflowed_ || (options_.codec_takes_momentum && is_not_finite(payload))) end_overflow();
}

void ErrorFeedback::update(const LinearCodec& codec) {
  if (options_.kind != ErrorFeedbackKind::kDgc) return;
  if (options_.masking) codec.clear_sent(momentum_);
  if (overflowed_) end_overflow();
}

void ErrorFeedback::end_overflow() {
  overflowed_ = false;
  for (size_t i = 0; i < residual_.size(); ++i)
    if (!std::isfinite(residual_[i]) || !std::isfinite(momentum_[i]))
      residual_[i] = momentum_[i] = 0;
}

void ErrorFeedback::rescale(float factor) {
  for (float& value : residual_) value *= factor;
}

}  // namespace gradbus
