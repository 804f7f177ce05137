#include "compression/codecs/dense_codec.h"

#include <algorithm>
#include <array>

#include "common/check.h"
#include "compression/codecs/every_element.h"
#include "compression/kernels/quantize/narrow.h"
#include "compression/kernels/vector/compensate.h"

namespace gradbus {
namespace {

// A short block, so that the loads of the next one start while this one is narrowed.
constexpr size_t kDenseBlock = 512;
static_assert(kDenseBlock <= kBlockElements);

// Writes v rounded to `dtype`, and the rounding error to the residual.
void narrow_input(DType dtype, const EncodeInput& input, std::byte* to) {
  const size_t count = input.count();
  float* const residual = input.residual.empty() ? nullptr : input.residual.data();
  if (residual == nullptr) return narrow(dtype, input.gradient.data(), count, to, nullptr);
  alignas(64) std::array<float, kDenseBlock> scratch;
  for (size_t at = 0; at < count; at += kDenseBlock) {
    const size_t n = std::min(kDenseBlock, count - at);
    const float* values = compensate_ahead(input, at, n, scratch.data());
    narrow(dtype, values, n, to + at * dtype_bytes(dtype), residual + at);
  }
}

}  // namespace

size_t DenseCodec::payload_bytes_max(size_t count) const {
  return kPayloadHeaderBytes + count * dtype_bytes(dtype_);
}

size_t DenseCodec::encode(const EncodeInput& input, std::span<std::byte> payload) {
  const size_t bytes = payload_bytes_max(input.count());
  store_every_element_header(id_, 0, input.count(), bytes - kPayloadHeaderBytes, payload);
  narrow_input(dtype_, input, payload.data() + kPayloadHeaderBytes);
  return bytes;
}

Status DenseCodec::check(std::span<const std::byte> payload, size_t count) const {
  return check_every_element_header(payload, id_, 0, count, count * dtype_bytes(dtype_));
}

void DenseCodec::accumulate(std::span<const std::byte> payload, float scale,
                            std::span<float> sum) const {
  widen(dtype_, payload_body(payload).data(), sum.size(), scale, sum.data(), true);
}

void DenseCodec::decode(std::span<const std::byte> payload, float scale,
                        std::span<float> values) const {
  widen(dtype_, payload_body(payload).data(), values.size(), scale, values.data(), false);
}

void DenseLinear::project(uint32_t, const EncodeInput& input, uint64_t, std::span<const std::byte>,
                          std::span<std::byte> vector) {
  GRADBUS_CHECK(input.count() == count_ && vector.size() == count_ * dtype_bytes(dtype_));
  narrow_input(dtype_, input, vector.data());
}

void DenseLinear::finish(const EncodeInput&, uint64_t, uint32_t, std::span<const std::byte> sum,
                         float scale, std::span<float> values) {
  GRADBUS_CHECK(values.size() == count_ && sum.size() == count_ * dtype_bytes(dtype_));
  widen(dtype_, sum.data(), count_, scale, values.data(), false);
}

}  // namespace gradbus
