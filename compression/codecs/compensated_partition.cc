#include "compression/codecs/compensated_partition.h"

#include <algorithm>
#include <cmath>

#include "compression/kernels/vector/compensate.h"

namespace gradbus {

CollectBlock collect_block_of(const EncodeInput& input, size_t first) {
  CollectBlock block{
      .of = {.decay = input.decay, .count = std::min(kSelectElements, input.count() - first)},
      .step = input.step,
      .first = static_cast<uint32_t>(first)};
  if (!input.gradient.empty()) block.of.gradient = &input.gradient[first];
  if (!input.residual.empty()) block.of.kept = &input.residual[first];
  if (!input.momentum.empty()) block.momentum = &input.momentum[first];
  return block;
}

float compensated_element(const EncodeInput& input, size_t i) {
  if (!input.momentum.empty()) return collected_element(collect_block_of(input, i), 0);
  if (input.residual.empty()) return input.gradient[i];
  const float kept = input.decay * input.residual[i];
  return (input.gradient.empty() ? 0.0F : input.gradient[i]) + kept;
}

size_t next_not_finite(const EncodeInput& input, size_t first) {
  while (first + 1 < input.count() && std::isfinite(compensated_element(input, first))) ++first;
  return first;
}

float not_finite_element(const EncodeInput& input, size_t i) {
  const bool taken_in = !input.momentum.empty() && std::isfinite(input.gradient[i]);
  return taken_in ? input.residual[i] : compensated_element(input, i);
}

std::span<const float> compensated_values(const EncodeInput& input) {
  return input.residual.empty() ? input.gradient : input.residual;
}

EncodeInput compensated(const EncodeInput& input) {
  return {.gradient = compensated_values(input), .seed = input.seed, .round = input.round};
}

size_t look_first(const EncodeInput& input) {
  const size_t count = input.gradient.size();
  if (input.residual.empty() || count > kLookFirstElements) return kAllFinite;
  const size_t bad = first_not_finite(input.gradient.data(), count);
  return bad < count ? bad : kAllFinite;
}

// With decay 0 the residual is not part of v, now or in the next step.
void restore_residual(const EncodeInput& input, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float kept = input.residual[i] - (input.gradient.empty() ? 0.0F : input.gradient[i]);
    input.residual[i] = input.decay == 0 ? 0 : kept / input.decay;
  }
}

}  // namespace gradbus
