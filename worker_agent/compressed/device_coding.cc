#include "worker_agent/compressed/device_coding.h"

#include "common/check.h"
#include "common/errors.h"
#include "compression/memory.h"

namespace gradbus {
namespace {

Status refuse(const std::string& what) {
  return error("D628", what + " is compressed by the processor");
}

// How many elements threshold sends turns up at the end, and a list with room for all of them is
// twice as long as the gradient, which so crosses the bus in half the time.
bool is_worthwhile(const CudaCodec& codec) {
  return codec.family != CudaFamily::kSelections ||
         static_cast<CudaRule>(codec.rule) != CudaRule::kThreshold;
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

// The residual is the only thing that is remembered on a device.
Status fits_device(const std::string& who, const CompressionPlan& compression, uint64_t count) {
  const CompressionSpec& spec = compression.spec;
  const std::string what = who + ": what is sent as \"" + spec.canonical + "\"";
  const bool summed = compression.communicator == Communicator::kAllReduce;
  if (!summed && compression.communicator != Communicator::kAllGather)
    return refuse(what + " by " + std::string(communicator_name(compression.communicator)));
  if (spec.options.text("nan") == "stop" || spec.options.number("fidelity") > 0)
    return refuse(what + ", whose elements the processor looks at,");
  if (memory_options(spec, 1).kind == MemoryKind::kDgc) return refuse(what + ", with a momentum,");
  if (spec.codec->make == nullptr) return refuse(what);
  const auto codec = cuda_codec(*make_codec(spec, unit_shape(compression, count, 0)));
  if (!codec || codec->momentum != 0 || !is_worthwhile(*codec) ||
      (summed && codec->family != CudaFamily::kDense))
    return refuse(what);
  return {};
}

Stage device_stage(const UnitPlan& unit, const Codec& codec) {
  if (unit.communicator == Communicator::kAllReduce)
    return vector_stage(unit, static_cast<DType>(cuda_codec(codec)->dtype), unit.count);
  return blocks_stage(unit, CollectiveKind::kAllGather, 0, codec.payload_bytes_max(unit.count));
}

}  // namespace gradbus
