#include "compression/memory.h"

#include <algorithm>
#include <cmath>

#include "compression/kernels/compensate.h"
#include "compression/kernels/momentum.h"
#include "compression/kernels/sums.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

MemoryKind kind_of(const CompressionSpec& spec) {
  const std::string& name = spec.options.text("ef");
  if (name == "none") return MemoryKind::kNone;
  if (name == "residual") return MemoryKind::kResidual;
  if (name == "dgc" || spec.codec->id == CodecId::kDgc) return MemoryKind::kDgc;
  return spec.codec->traits.wants_feedback ? MemoryKind::kResidual : MemoryKind::kNone;
}

// What clipping to `norm_max` multiplies the gradient with (DGC's public code: the 1e-6 too).
float clip_factor(std::span<const float> gradient, float norm_max) {
  if (norm_max <= 0) return 1;
  const double norm = std::sqrt(dot_product(gradient.data(), gradient.data(), gradient.size()));
  return static_cast<float>(std::min(1.0, norm_max / (norm + 1e-6)));
}

}  // namespace

MemoryOptions memory_options(const CompressionSpec& spec, uint32_t agents) {
  MemoryOptions options;
  options.kind = kind_of(spec);
  options.decay = static_cast<float>(spec.options.number("decay"));
  options.momentum = static_cast<float>(spec.options.number("momentum"));
  options.nesterov = spec.options.text("nesterov") == "yes";
  options.masking = spec.options.text("masking") == "yes";
  options.clip_norm =
      static_cast<float>(spec.options.number("clip") / std::sqrt(static_cast<double>(agents)));
  return options;
}

Memory::Memory(const MemoryOptions& options, size_t count)
    : options_(options),
      residual_(options.kind == MemoryKind::kNone ? 0 : count),
      momentum_(options.kind == MemoryKind::kDgc ? count : 0) {}

EncodeInput Memory::compensate(std::span<const float> gradient, uint64_t seed, uint64_t round) {
  EncodeInput input{.gradient = gradient, .seed = seed, .round = round};
  if (options_.kind == MemoryKind::kNone) return input;
  input.residual = residual_;
  input.decay = options_.decay;
  // The codec sees what is not finite in the gradient itself, and leaves the residual alone.
  if (options_.kind != MemoryKind::kDgc ||
      first_not_finite(gradient.data(), gradient.size()) < gradient.size())
    return input;
  accumulate_momentum({.momentum = options_.momentum,
                       .nesterov = options_.nesterov,
                       .clip = clip_factor(gradient, options_.clip_norm),
                       .decay = options_.decay},
                      gradient, momentum_, residual_);
  input.gradient = {};
  input.decay = 1;
  return input;
}

void Memory::update(const Codec& codec, std::span<const std::byte> payload) {
  if (options_.kind == MemoryKind::kDgc && options_.masking) codec.clear_sent(payload, momentum_);
}

void Memory::rescale(float factor) {
  for (float& value : residual_) value *= factor;
}

}  // namespace gradbus
