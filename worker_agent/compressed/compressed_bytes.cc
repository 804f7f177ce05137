#include "worker_agent/compressed/compressed_bytes.h"

#include "common/checked.h"
#include "compression/error_feedback.h"
#include "compression/registry.h"

namespace gradbus {
namespace {

// Lists of selected elements are the largest scratch memory of codecs: as long as the payload.
constexpr uint64_t kScratchPayloads = 2;

uint64_t linear_bytes(const CompressionPlan& compression, const CodecShape& shape) {
  const auto codec = compression.spec.codec->make_linear(compression.spec.options, shape);
  uint64_t bytes = 0;
  for (uint32_t round = 0; round < codec->rounds(); ++round)
    bytes += codec->vector_elements(round) * dtype_bytes(codec->dtype(round));
  return bytes;
}

uint64_t remembered_bytes(const CompressionPlan& compression, uint64_t count, uint32_t agents,
                          bool holds_parameters) {
  const ErrorFeedbackKind kind = error_feedback_options(compression.spec, agents).kind;
  const uint64_t vectors = kind == ErrorFeedbackKind::kNone  ? 0
                           : kind == ErrorFeedbackKind::kDgc ? 2
                                                             : 1;
  return (vectors + (holds_parameters ? 1 : 0)) * count * sizeof(float);
}

}  // namespace

// Only the payloads of an all-to-all that start or end here are written.
uint64_t compressed_bytes(const CompressionPlan& compression, uint64_t count, uint32_t agents,
                          bool holds_parameters) {
  if (count == 0) return 0;
  const CodecShape shape = partition_shape(compression, count, 0);
  const bool summed = compression.communicator == Communicator::kAllReduce;
  uint64_t payload = 0;
  uint64_t payloads = 1;
  if (summed && is_linear(compression.spec)) {
    payload = linear_bytes(compression, shape);
  } else {
    payload = make_codec(compression.spec, shape)->payload_bytes_max(shape.count_max);
    payloads = summed ? 2 * uint64_t{agents} : uint64_t{agents} + 1;
  }
  const uint64_t remembered =
      remembered_bytes(compression, shape.count_max, agents, holds_parameters);
  const uint64_t partitions = (count + shape.count_max - 1) / shape.count_max;
  return checked_product(
      partitions, checked_sum(remembered, checked_product(payload, payloads + kScratchPayloads)));
}

}  // namespace gradbus
