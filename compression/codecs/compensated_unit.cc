#include "compression/codecs/compensated_unit.h"

namespace gradbus {

float compensated_element(const EncodeInput& input, size_t i) {
  if (input.residual.empty()) return input.gradient[i];
  const float kept = input.decay * input.residual[i];
  return (input.gradient.empty() ? 0.0F : input.gradient[i]) + kept;
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

// With decay 0 the residual had no part in v, nor has it in the next one.
void restore_residual(const EncodeInput& input, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    const float kept = input.residual[i] - (input.gradient.empty() ? 0.0F : input.gradient[i]);
    input.residual[i] = input.decay == 0 ? 0 : kept / input.decay;
  }
}

}  // namespace gradbus
