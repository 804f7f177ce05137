#include "worker_agent/compressed/device_coding.h"

#include "common/check.h"
#include "common/errors.h"
#include "compression/cuda/cuda_error_feedback.h"
#include "compression/error_feedback.h"
#include "data_plane/second_encoding.h"
#include "worker_agent/compressed/device_linear.h"

namespace gradbus {
namespace {

Status refuse(const std::string& what) {
  return error("D628", what + " is compressed by the processor");
}

// The number of elements that threshold sends is known only at the end. A list with room for all of
// them is twice as long as the gradient, so sending the gradient over the bus takes half the time.
bool is_worthwhile(const CudaCodec& codec) {
  return codec.family != CudaFamily::kSelections ||
         static_cast<CudaRule>(codec.rule) != CudaRule::kThreshold;
}

bool has_owners(const CompressionPlan& compression) {
  return compression.communicator == Communicator::kPs;
}

// An owner's encoding has kernels if the node's encoding has them.
bool has_kernels(const CompressionPlan& compression, const CodecShape& shape) {
  if (make_device_linear(compression.spec, shape) != nullptr) return true;
  if (compression.spec.codec->make == nullptr) return false;
  const auto codec = cuda_codec(*make_codec(compression.spec, shape));
  if (!codec || !is_worthwhile(*codec)) return false;
  return compression.communicator != Communicator::kAllReduce ||
         codec->family == CudaFamily::kDense;
}

// DGC's momentum, unless gradients are clipped by the norm of a partition. Signum has its own
// momentum. Linear codecs end a round after other partitions have begun one, but there is only one
// word `taken`.
bool has_error_feedback(const CompressionSpec& spec) {
  const ErrorFeedbackOptions options = error_feedback_options(spec, 1);
  if (options.kind != ErrorFeedbackKind::kDgc) return true;
  return cuda_momentum(options).has_value() && spec.codec->id != CodecId::kSignum &&
         spec.codec->make != nullptr;
}

}  // namespace

DeviceCoding::DeviceCoding(std::unique_ptr<Codec> of, size_t count)
    : codec(std::move(of)),
      on_device(cuda_codec(*codec).value()),
      most(cuda_choice_max(*codec, count)),
      payload_bytes(codec->payload_bytes_max(count)) {
  GRADBUS_CHECK(lists() || cuda_payload_bytes(on_device, count) == payload_bytes);
}

size_t DeviceCoding::device_bytes() const {
  return lists() ? cuda_payload_bytes(on_device, 0, most.entries) : payload_bytes;
}

Status fits_device(const std::string& who, const CompressionPlan& compression, uint64_t count) {
  const CompressionSpec& spec = compression.spec;
  const std::string what = who + ": what is sent as \"" + spec.canonical + "\"";
  if (spec.options.text("nan") == "stop" || spec.options.number("fidelity") > 0)
    return refuse(what + ", whose elements the processor looks at,");
  if (!has_error_feedback(spec)) return refuse(what + ", with such a momentum,");
  return has_kernels(compression, partition_shape(compression, count, 0)) ? Status() : refuse(what);
}

std::vector<DeviceCoding> device_codings(const CompressionPlan& compression,
                                         const CodecShape& shape, uint32_t agents) {
  std::vector<DeviceCoding> codings;
  codings.emplace_back(make_codec(compression.spec, shape), shape.count_max);
  if (has_owners(compression))
    codings.emplace_back(second_codec(compression.spec, shape, agents), shape.count_max);
  return codings;
}

std::vector<Stage> device_stages(const PartitionPlan& partition,
                                 const std::vector<DeviceCoding>& codings) {
  const DeviceCoding& first = codings.front();
  if (partition.communicator == Communicator::kAllReduce)
    return {vector_stage(partition, static_cast<DType>(first.on_device.dtype), partition.count)};
  if (codings.size() == 1)
    return {blocks_stage(partition, CollectiveKind::kAllGather, 0, first.payload_bytes)};
  return {blocks_stage(partition, CollectiveKind::kGather, partition.owner(), first.payload_bytes),
          blocks_stage(partition, CollectiveKind::kAllGather, 0, codings.back().payload_bytes)};
}

}  // namespace gradbus
