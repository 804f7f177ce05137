#include "server/planner.h"

#include <algorithm>

#include "common/check.h"
#include "proto/frame.h"

namespace gradbus {
namespace {

constexpr uint64_t kAlignElements = 64;

uint64_t divide_up(uint64_t value, uint64_t by) { return (value + by - 1) / by; }
uint64_t round_up(uint64_t value, uint64_t to) { return divide_up(value, to) * to; }

// The target in elements: aligned, at least one alignment unit, at most a frame.
uint64_t target_elements(uint64_t element_bytes, uint64_t chunk_bytes) {
  const uint64_t bytes = std::min<uint64_t>(chunk_bytes, kFramePayloadBytesMax);
  return std::max(bytes / element_bytes / kAlignElements, uint64_t{1}) * kAlignElements;
}

// Elements that the busiest of `agents` owners gets.
uint64_t busiest_share(uint64_t count, uint64_t elements, uint64_t agents) {
  return divide_up(divide_up(count, elements), agents) * elements;
}

// Begins with the cut into the fewest chunks that `agents` divides. Rounding to whole cache lines
// may leave the last owners without a chunk, so smaller chunks are tried, down to half, and the
// best is taken. An exact multiple always wins: its busiest share is below (count + elements) /
// agents, every other one's is at least that.
uint64_t balanced_elements(uint64_t count, uint64_t target, uint64_t agents) {
  const uint64_t chunks = round_up(divide_up(count, target), agents);
  const uint64_t largest = round_up(divide_up(count, chunks), kAlignElements);
  uint64_t best = largest;
  for (uint64_t elements = largest; elements * 2 >= largest; elements -= kAlignElements) {
    if (busiest_share(count, elements, agents) < busiest_share(count, best, agents))
      best = elements;
    if (divide_up(count, best) % agents == 0) break;
  }
  return best;
}

}  // namespace

uint64_t plan_chunk_elements(const v1::TensorSpec& spec, uint32_t agents, uint64_t chunk_bytes) {
  const uint64_t element_bytes = dtype_bytes(static_cast<DType>(spec.dtype()));
  GRADBUS_CHECK(element_bytes > 0 && agents > 0);
  const uint64_t target = target_elements(element_bytes, chunk_bytes);
  const bool ring = agents > 1 && spec.collective() == uint32_t(CollectiveKind::kAllReduce);
  if (ring && spec.count() * element_bytes >= agents * kOwnerBytesMin) {
    return balanced_elements(spec.count(), target, agents);
  }
  return std::clamp(spec.count(), uint64_t{1}, target);
}

}  // namespace gradbus
