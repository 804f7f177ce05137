#include "compression/codecs/threshold.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "common/check.h"
#include "compression/codecs/compensated_partition.h"
#include "compression/kernels/select/expand.h"
#include "compression/kernels/select/select.h"
#include "compression/kernels/vector/compensate.h"

namespace gradbus {
namespace {

// 32 KiB of L1 hold v, and the found values if they must be rounded first.
constexpr size_t kThresholdBlock = 2048;

// Calls visit(element) for every set bit of the masks of `count` elements, in order.
template <typename Visit>
void for_each_bit(const uint64_t* masks, size_t count, const Visit& visit) {
  for (size_t m = 0; m < (count + 63) / 64; ++m)
    for (uint64_t mask = masks[m]; mask != 0; mask &= mask - 1)
      visit(64 * m + static_cast<size_t>(std::countr_zero(mask)));
}

}  // namespace

Threshold::Threshold(float value, WireType type, size_t count_max)
    : SparseCodec(CodecId::kThreshold, type),
      key_(magnitude_key(value)),
      masks_(new uint64_t[count_max / 64 + 1]),
      indices_(new uint32_t[count_max + kIndexSlack]) {}

size_t Threshold::encode(const EncodeInput& input, std::span<std::byte> payload) {
  const size_t count = input.count();
  GRADBUS_CHECK(payload.size() >= payload_bytes_max(count));
  if (count == 0) return encode_sparse(CodecId::kThreshold, type(), 0, {}, payload);
  if (const size_t bad = collect(input, payload); bad != kAllFinite)
    return encode_not_finite(CodecId::kThreshold, count, bad, compensated_element(input, bad),
                             payload);
  if (wants_bitmap(entries_, count))
    return seal_sparse(CodecId::kThreshold, type(), count, entries_, masks_.get(), payload);
  return seal_sparse(CodecId::kThreshold, type(), count, listed(count), payload);
}

size_t Threshold::collect(const EncodeInput& input, std::span<std::byte> payload) {
  entries_ = 0;
  if (const size_t bad = look_first(input); bad != kAllFinite) return bad;
  const bool settles = !sends_exactly() && !input.residual.empty();
  const bool v_is_there = settles && input.gradient.empty() && input.decay == 1;
  const EncodeInput from = v_is_there ? compensated(input) : input;
  const std::span<std::byte> values = payload.subspan(kPayloadHeaderBytes);
  for (size_t first = 0; first < input.count(); first += kThresholdBlock) {
    SelectBlock block{.decay = input.decay,
                      .count = std::min(kThresholdBlock, input.count() - first),
                      .clears = sends_exactly()};
    if (!from.gradient.empty()) block.gradient = &from.gradient[first];
    if (!from.residual.empty()) block.kept = &from.residual[first];
    uint64_t* const masks = &masks_[first / 64];
    const TakenBlock got = take(block, masks, values.subspan(entries_ * wire_type_bytes(type())),
                                settles ? &input.residual[first] : nullptr);
    entries_ += got.found;
    if (got.taken < block.count) return give_up(input, first + got.taken, values);
  }
  return kAllFinite;
}

// Writes the found values straight into the payload, if they need no conversion and the payload has
// room for the slack behind them.
TakenBlock Threshold::take(const SelectBlock& block, uint64_t* masks, std::span<std::byte> values,
                           float* settled) const {
  if (sends_exactly() && values.size() >= (block.count + kValueSlack) * sizeof(float) &&
      reinterpret_cast<uintptr_t>(values.data()) % alignof(float) == 0)
    return take_block(block, key_, masks, reinterpret_cast<float*>(values.data()));
  std::array<float, kThresholdBlock + kValueSlack> found;
  const TakenBlock got = take_block(block, key_, masks, found.data());
  store_wire_values(type(), found.data(), got.found, values.data());
  if (settled == nullptr) return got;
  load_wire_values(type(), values.data(), got.found, -1, found.data());
  if (first_not_finite(found.data(), got.found) == got.found) {
    add_expanded(reinterpret_cast<const std::byte*>(masks), got.taken, found.data(), settled);
    return got;
  }
  const float* lost = found.data();
  for_each_bit(masks, got.taken, [&](size_t i) {
    settled[i] = std::isfinite(*lost) ? settled[i] + *lost : 0;
    ++lost;
  });
  return got;
}

// The element is in the word behind the first `taken` elements. Those were written, minus the sent
// values. An element whose sent value overflowed was dropped, so it is not restored.
size_t Threshold::give_up(const EncodeInput& input, size_t taken,
                          std::span<const std::byte> values) const {
  const size_t bad = next_not_finite(input, taken);
  if (input.residual.empty()) return bad;
  const std::byte* from = values.data();
  for_each_bit(masks_.get(), taken, [&](size_t i) {
    float sent = 0;
    load_wire_values(type(), from, 1, 1, &sent);
    from += wire_type_bytes(type());
    if (std::isfinite(sent))
      input.residual[i] += sent;
    else
      input.residual[i] = input.gradient.empty() ? 0 : input.gradient[i];
  });
  restore_residual(input, taken);
  return bad;
}

std::span<const uint32_t> Threshold::listed(size_t count) {
  return {indices_.get(), put_indices(masks_.get(), count, 0, indices_.get())};
}

std::unique_ptr<Codec> make_threshold(const CodecOptions& options, const CodecShape& shape) {
  return std::make_unique<Threshold>(static_cast<float>(options.number("value")),
                                     wire_type(options.text("values")), shape.count_max);
}

}  // namespace gradbus
