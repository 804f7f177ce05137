#include "compression/codec.h"

#include <algorithm>

namespace gradbus {

void Codec::decode(std::span<const std::byte> payload, float scale, std::span<float> values) const {
  std::fill(values.begin(), values.end(), 0.0F);
  accumulate(payload, scale, values);
}

void Codec::clear_sent(std::span<const std::byte>, std::span<float>) const {}

void LinearCodec::clear_sent(std::span<float>) const {}

}  // namespace gradbus
