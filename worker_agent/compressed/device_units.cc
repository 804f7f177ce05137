#include "worker_agent/compressed/device_units.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "common/errors.h"
#include "compression/memory.h"
#include "compression/payload.h"
#include "worker_agent/compressed/units.h"

namespace gradbus {
namespace {

constexpr uint64_t kZeros = 1 << 16;  // elements: a few copies for a unit, 256 KiB for a tensor

Status refuse(const std::string& what) {
  return error("D628", what + " is compressed by the processor");
}

std::unique_ptr<Codec> codec_of(const CompressionPlan& compression, uint64_t count, uint32_t unit) {
  return make_codec(compression.spec, unit_shape(compression, count, unit));
}

}  // namespace

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
  const auto codec = cuda_codec(*codec_of(compression, count, 0));
  if (!codec || codec->family == CudaFamily::kSelections || codec->momentum != 0 ||
      (summed && codec->family != CudaFamily::kDense))
    return refuse(what);
  return {};
}

Stage device_stage(const UnitPlan& unit, const Codec& codec) {
  if (unit.communicator == Communicator::kAllReduce)
    return vector_stage(unit, static_cast<DType>(cuda_codec(codec)->dtype), unit.count);
  return blocks_stage(unit, CollectiveKind::kAllGather, 0, codec.payload_bytes_max(unit.count));
}

// ---- set-up

DeviceUnits::DeviceUnits(std::shared_ptr<DeviceTensor> tensor, const DeviceUnitsPlan& plan)
    : tensor_(std::move(tensor)),
      skipped_(plan.compression.communicator == Communicator::kAllReduce ? kPayloadHeaderBytes : 0),
      has_residual_(memory_options(plan.compression.spec, plan.agents).kind ==
                    MemoryKind::kResidual),
      decay_(memory_options(plan.compression.spec, plan.agents).decay) {
  plan_units(plan);
}

void DeviceUnits::plan_units(const DeviceUnitsPlan& plan) {
  const uint64_t unit_elements = plan.compression.unit_elements;
  UnitPlan exchange;
  exchange.spec = plan.compression.spec;
  exchange.communicator = plan.compression.communicator;
  exchange.agent_index = plan.agent_index;
  exchange.agents = plan.agents;
  for (uint64_t first = 0; first < plan.count; first += unit_elements) {
    const auto codec =
        codec_of(plan.compression, plan.count, static_cast<uint32_t>(first / unit_elements));
    exchange.count = std::min(unit_elements, plan.count - first);
    Unit unit{.first = first,
              .elements = static_cast<uint32_t>(exchange.count),
              .codec = cuda_codec(*codec).value(),
              .payload_bytes = codec->payload_bytes_max(exchange.count)};
    GRADBUS_CHECK(cuda_payload_bytes(unit.codec, unit.elements) == unit.payload_bytes);
    units_.push_back(unit);
    host_bytes_ += device_stage(exchange, *codec).bytes;
    workspace_bytes_ = std::max(workspace_bytes_, cuda_workspace_bytes(encoding(unit)));
  }
}

Result<std::shared_ptr<DeviceUnits>> DeviceUnits::make(std::shared_ptr<DeviceTensor> tensor,
                                                       const DeviceUnitsPlan& plan) {
  std::shared_ptr<DeviceUnits> made(new DeviceUnits(std::move(tensor), plan));
  GRADBUS_RETURN_IF_ERROR(made->set_up(plan.count));
  return made;
}

Status DeviceUnits::allocate(uint64_t bytes, void** memory, const char* what) {
  return check(cuda().allocate(tensor_->home(), bytes, memory), what);
}

Status DeviceUnits::set_up(uint64_t count) {
  const uint64_t zeros = std::min(count, kZeros) * sizeof(float);
  void* host = nullptr;
  GRADBUS_RETURN_IF_ERROR(check(cuda().allocate_host(std::max<uint64_t>(host_bytes_, zeros), &host),
                                "pinned memory for payloads"));
  host_ = static_cast<std::byte*>(host);
  std::memset(host_, 0, std::max<uint64_t>(host_bytes_, zeros));
  GRADBUS_RETURN_IF_ERROR(allocate(zeros, &zeros_, "memory"));
  GRADBUS_RETURN_IF_ERROR(allocate(count * sizeof(float), &kept_, "memory for a residual"));
  GRADBUS_RETURN_IF_ERROR(allocate(units_.front().payload_bytes, &payload_, "memory for payloads"));
  if (workspace_bytes_ > 0)
    GRADBUS_RETURN_IF_ERROR(allocate(workspace_bytes_, &workspace_, "memory to encode in"));
  GRADBUS_RETURN_IF_ERROR(check(cuda().copy(tensor_->stream(), zeros_, host_, zeros), "a copy"));
  return zero(static_cast<float*>(kept_), count);
}

DeviceUnits::~DeviceUnits() {
  if (!tensor_->quiet()) return;  // which says so itself; memory that is in use is left
  for (void* const memory : {kept_, payload_, workspace_, zeros_})
    if (memory != nullptr) cuda().free(tensor_->home(), memory);
  if (host_ != nullptr) cuda().free_host(host_);
}

// ---- a round

CudaEncode DeviceUnits::encoding(const Unit& unit) const {
  return {.codec = unit.codec,
          .payload = static_cast<uint8_t*>(payload_),
          .workspace = workspace_,
          .count = unit.elements,
          .decay = decay_};
}

Status DeviceUnits::encode(size_t index, uint64_t seed, std::span<std::byte> payload) {
  Unit& unit = units_[index];
  GRADBUS_CHECK(payload.size() == payload_bytes(index));
  GRADBUS_RETURN_IF_ERROR(tensor_->sum_unit(index));
  float* const sum = tensor_->front() + unit.first;
  if (std::exchange(unit.carries, false)) GRADBUS_RETURN_IF_ERROR(add_kept(unit, sum));
  CudaEncode input = encoding(unit);
  input.gradient = sum;
  input.residual = has_residual_ ? static_cast<float*>(kept_) + unit.first : nullptr;
  input.seed = seed;
  GRADBUS_RETURN_IF_ERROR(check(cuda().encode(tensor_->stream(), &input), "encoding"));
  GRADBUS_RETURN_IF_ERROR(check(
      cuda().copy(tensor_->stream(), payload.data(), travelling(), payload.size()), "a payload"));
  return tensor_->announce(index);
}

Status DeviceUnits::decode(size_t index, std::span<const std::byte> payload, float scale,
                           bool adds) {
  const Unit& unit = units_[index];
  GRADBUS_CHECK(payload.size() == payload_bytes(index));
  GRADBUS_RETURN_IF_ERROR(check(
      cuda().copy(tensor_->stream(), travelling(), payload.data(), payload.size()), "a payload"));
  const CudaApply input{.codec = unit.codec,
                        .payload = static_cast<const uint8_t*>(payload_),
                        .to = tensor_->front() + unit.first,
                        .count = unit.elements,
                        .scale = scale,
                        .add = adds ? 1U : 0U};
  return check(cuda().apply(tensor_->stream(), &input), "decoding");
}

// ---- what is remembered

Status DeviceUnits::sum(size_t unit) {
  GRADBUS_RETURN_IF_ERROR(tensor_->sum_unit(unit));
  return tensor_->announce(unit);
}

Status DeviceUnits::zero(float* elements, uint64_t count) {
  for (uint64_t first = 0; first < count; first += kZeros) {
    const uint64_t bytes = std::min(kZeros, count - first) * sizeof(float);
    GRADBUS_RETURN_IF_ERROR(
        check(cuda().copy(tensor_->stream(), elements + first, zeros_, bytes), "zeros"));
  }
  return {};
}

Status DeviceUnits::add_kept(const Unit& unit, float* to) {
  CudaReduce input{.source_count = 2,
                   .target_count = 1,
                   .count = unit.elements,
                   .dtype = static_cast<uint32_t>(DType::kF32),
                   .op = static_cast<uint32_t>(ReduceOp::kSum)};
  input.sources[0] = input.targets[0] = to;
  input.sources[1] = static_cast<float*>(kept_) + unit.first;
  return check(cuda().reduce(tensor_->stream(), &input), "adding what was kept");
}

Status DeviceUnits::read_memory(size_t index, MemoryPart part) {
  const Unit& unit = units_[index];
  for (uint32_t rank = 0; rank < tensor_->local_size(); ++rank)
    GRADBUS_RETURN_IF_ERROR(zero(tensor_->elements(rank) + unit.first, unit.elements));
  const bool keeps = part == MemoryPart::kResidual && (has_residual_ || unit.carries);
  return keeps ? add_kept(unit, tensor_->elements(0) + unit.first) : Status();
}

Status DeviceUnits::write_memory(size_t index, MemoryPart part) {
  Unit& unit = units_[index];
  if (part != MemoryPart::kResidual) return {};
  unit.carries = !has_residual_;
  return check(cuda().copy(tensor_->stream(), static_cast<float*>(kept_) + unit.first,
                           tensor_->front() + unit.first, unit.elements * sizeof(float)),
               "what is to be kept");
}

// As Memory::rescale(): what is carried stays as it was written.
Status DeviceUnits::scale_memory(size_t index, float factor) {
  if (!has_residual_) return {};
  const Unit& unit = units_[index];
  CudaReduce input{.before = factor,
                   .source_count = 1,
                   .target_count = 1,
                   .count = unit.elements,
                   .dtype = static_cast<uint32_t>(DType::kF32),
                   .op = static_cast<uint32_t>(ReduceOp::kSum)};
  input.sources[0] = input.targets[0] = static_cast<float*>(kept_) + unit.first;
  return check(cuda().reduce(tensor_->stream(), &input), "scaling what is kept");
}

}  // namespace gradbus
