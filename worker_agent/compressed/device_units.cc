#include "worker_agent/compressed/device_units.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "compression/cuda/cuda_selection.h"

namespace gradbus {
namespace {

constexpr size_t kListAlign = 128;

size_t aligned(size_t bytes) { return (bytes + kListAlign - 1) / kListAlign * kListAlign; }

// Of any of a unit's encodings.
size_t list_stride(const std::vector<DeviceCoding>& codings) {
  size_t bytes = 0;
  for (const DeviceCoding& coding : codings)
    if (coding.lists()) bytes = std::max(bytes, coding.device_bytes());
  return aligned(bytes);
}

}  // namespace

// ---- set-up

DeviceUnits::DeviceUnits(std::shared_ptr<DeviceTensor> tensor, const DeviceUnitsPlan& plan)
    : tensor_(std::move(tensor)),
      agent_index_(plan.agent_index),
      agents_(plan.agents),
      skipped_(plan.compression.communicator == Communicator::kAllReduce ? kPayloadHeaderBytes : 0),
      memory_(memory_options(plan.compression.spec, plan.agents)),
      has_residual_(memory_.kind != MemoryKind::kNone) {
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
    exchange.index = static_cast<uint32_t>(first / unit_elements);
    const CodecShape shape = unit_shape(plan.compression, plan.count, exchange.index);
    exchange.count = shape.count_max;
    Unit& unit = units_.emplace_back(
        Unit{.first = first, .elements = static_cast<uint32_t>(shape.count_max)});
    unit.linear = make_device_linear(plan.compression.spec, shape);
    if (unit.linear == nullptr) unit.codings = device_codings(plan.compression, shape);
    for (const Stage& stage : stages(exchange)) payloads_bytes_ += stage.bytes;
    if (unit.codings.size() > 1 && has_residual_ && owns(exchange.index)) owned_ += unit.elements;
    plan_memory(unit);
  }
}

std::vector<Stage> DeviceUnits::stages(const UnitPlan& unit) const {
  const Unit& here = units_[unit.index];
  return here.linear == nullptr ? device_stages(unit, here.codings)
                                : vector_stages(unit, here.linear->codec());
}

size_t DeviceUnits::lists_bytes(const Unit& unit) const {
  return unit.linear == nullptr ? agents_ * list_stride(unit.codings)
                                : aligned(unit.linear->parts_bytes());
}

void DeviceUnits::plan_memory(const Unit& unit) {
  lists_bytes_ += lists_bytes(unit);
  if (unit.linear != nullptr) {
    workspace_bytes_ = std::max(workspace_bytes_, unit.linear->parts_bytes());
    for (const uint32_t round : {0U, 1U})
      device_bytes_ = std::max(device_bytes_, unit.linear->vector_bytes(round));
  }
  for (const DeviceCoding& coding : unit.codings) {
    device_bytes_ = std::max(device_bytes_, coding.device_bytes());
    workspace_bytes_ =
        std::max(workspace_bytes_, cuda_workspace_bytes(input(unit, coding, coding.most)));
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
  const uint64_t zeros = std::min(count, kZerosMax) * sizeof(float);
  const uint64_t zeros_at = payloads_bytes_ + lists_bytes_;
  const uint64_t host_bytes = zeros_at + zeros;
  void* host = nullptr;
  GRADBUS_RETURN_IF_ERROR(
      check(cuda().allocate_host(host_bytes, &host), "pinned memory for payloads"));
  host_ = static_cast<std::byte*>(host);
  std::memset(host_, 0, host_bytes);
  GRADBUS_RETURN_IF_ERROR(allocate(zeros, &zeros_, "memory"));
  GRADBUS_RETURN_IF_ERROR(allocate(count * sizeof(float), &kept_, "memory for a residual"));
  GRADBUS_RETURN_IF_ERROR(allocate(device_bytes_, &payload_, "memory for payloads"));
  if (workspace_bytes_ > 0)
    GRADBUS_RETURN_IF_ERROR(allocate(workspace_bytes_, &workspace_, "memory to encode in"));
  if (owned_ > 0)
    GRADBUS_RETURN_IF_ERROR(
        allocate(owned_ * sizeof(float), &owner_kept_, "memory for an owner's residual"));
  const std::vector<DeviceCoding>& codings = units_.front().codings;
  const bool has_momentum = !codings.empty() && codings.front().on_device.momentum != 0;
  if (has_momentum || memory_.kind == MemoryKind::kDgc)
    GRADBUS_RETURN_IF_ERROR(allocate(count * sizeof(float), &momentum_, "memory for a momentum"));
  if (memory_.kind == MemoryKind::kDgc)
    GRADBUS_RETURN_IF_ERROR(allocate(sizeof(uint32_t), &taken_, "memory for a word"));
  place_units();
  GRADBUS_RETURN_IF_ERROR(
      check(cuda().copy(tensor_->stream(), zeros_, host_ + zeros_at, zeros), "a copy"));
  GRADBUS_RETURN_IF_ERROR(zero(static_cast<float*>(owner_kept_), owned_));
  if (momentum_ != nullptr) GRADBUS_RETURN_IF_ERROR(zero(static_cast<float*>(momentum_), count));
  return zero(static_cast<float*>(kept_), count);
}

void DeviceUnits::place_units() {
  std::byte* lists = host_ + payloads_bytes_;
  auto* owner_residual = static_cast<float*>(owner_kept_);
  for (size_t index = 0; index < units_.size(); ++index) {
    Unit& unit = units_[index];
    unit.lists = {lists, lists_bytes(unit)};
    lists += unit.lists.size();
    if (owner_kept_ == nullptr || !owns(index)) continue;
    unit.owner_residual = owner_residual;
    owner_residual += unit.elements;
  }
}

DeviceUnits::~DeviceUnits() {
  if (!tensor_->quiet()) return;  // which says so itself; memory that is in use is left
  for (void* const memory : {kept_, owner_kept_, momentum_, taken_, payload_, workspace_, zeros_})
    if (memory != nullptr) cuda().free(tensor_->home(), memory);
  if (host_ != nullptr) cuda().free_host(host_);
}

// ---- a round

CudaEncode DeviceUnits::input(const Unit& unit, const DeviceCoding& coding,
                              const CudaChoice& choice) const {
  return {.codec = coding.on_device,
          .payload = static_cast<uint8_t*>(payload_),
          .workspace = workspace_,
          .count = unit.elements,
          .decay = memory_.decay,
          .choice = choice};
}

std::span<std::byte> DeviceUnits::list(const Unit& unit, uint32_t agent) const {
  const size_t stride = unit.lists.size() / agents_;
  return unit.lists.subspan(agent * stride, stride);
}

Status DeviceUnits::sum_up(size_t index) {
  Unit& unit = units_[index];
  GRADBUS_RETURN_IF_ERROR(tensor_->sum_unit(index));
  if (!std::exchange(unit.carries, false)) return {};
  return add(kept(unit), unit.elements, tensor_->front() + unit.first);
}

Status DeviceUnits::encode(size_t index, const EncodingRound& round, std::span<std::byte> payload) {
  const Unit& unit = units_[index];
  GRADBUS_RETURN_IF_ERROR(sum_up(index));
  CudaEncode input =
      this->input(unit, Encoding::kNode, round, has_residual_ ? kept(unit) : nullptr);
  if (input.codec.momentum != 0) input.momentum = momentum(unit);
  input.taken = static_cast<const uint32_t*>(taken_);
  if (taken_ != nullptr) GRADBUS_RETURN_IF_ERROR(remember(unit));
  GRADBUS_RETURN_IF_ERROR(encode(index, Encoding::kNode, input, payload));
  return taken_ != nullptr ? forget(unit) : Status();
}

Status DeviceUnits::encode_again(size_t index, const EncodingRound& round,
                                 std::span<std::byte> payload) {
  const Unit& unit = units_[index];
  return encode(index, Encoding::kOwner, input(unit, Encoding::kOwner, round, unit.owner_residual),
                payload);
}

CudaEncode DeviceUnits::input(const Unit& unit, Encoding encoding, const EncodingRound& round,
                              float* residual) const {
  const DeviceCoding& coding = this->coding(unit, encoding);
  CudaEncode made = input(
      unit, coding, cuda_choice(*coding.codec, unit.elements, round.number, residual != nullptr));
  GRADBUS_CHECK(made.choice.entries <= coding.most.entries &&
                cuda_workspace_bytes(made) <= workspace_bytes_);
  made.gradient = tensor_->front() + unit.first;
  made.residual = residual;
  made.seed = round.seed;
  return made;
}

Status DeviceUnits::encode(size_t index, Encoding encoding, const CudaEncode& input,
                           std::span<std::byte> payload) {
  Unit& unit = units_[index];
  const DeviceCoding& coding = this->coding(unit, encoding);
  GRADBUS_CHECK(payload.size() == payload_bytes(index, encoding));
  GRADBUS_RETURN_IF_ERROR(check(cuda().encode(tensor_->stream(), &input), "encoding"));
  unit.entries = input.choice.entries;
  const size_t list_bytes = cuda_payload_bytes(coding.on_device, 0, unit.entries);
  const auto to = coding.lists() ? list(unit, agent_index_).first(list_bytes) : payload;
  GRADBUS_RETURN_IF_ERROR(
      check(cuda().copy(tensor_->stream(), to.data(), travelling(), to.size()), "a payload"));
  return tensor_->announce(index);
}

size_t DeviceUnits::finish(size_t index, Encoding encoding, std::span<std::byte> payload) {
  const Unit& unit = units_[index];
  const DeviceCoding& coding = this->coding(unit, encoding);
  if (!coding.lists()) return payload.size();
  return payload_of_list(coding.on_device, unit.elements, unit.entries, list(unit, agent_index_),
                         payload);
}

// A list is no longer than its payload needs; of one that is not finite, a header.
Status DeviceUnits::decode(size_t index, Encoding encoding, uint32_t agent,
                           std::span<const std::byte> payload, const Decoded& decoded) {
  const Unit& unit = units_[index];
  const DeviceCoding& coding = this->coding(unit, encoding);
  CudaApply input{.codec = coding.on_device,
                  .payload = static_cast<const uint8_t*>(payload_),
                  .to = tensor_->front() + unit.first,
                  .count = unit.elements,
                  .scale = decoded.scale,
                  .add = decoded.adds ? 1U : 0U};
  if (coding.lists()) {
    input.entries = payload_header(payload).entries;
    const std::span<std::byte> taken = list(unit, agent);
    payload = taken.first(list_of_payload(payload, input.entries, taken));
  } else {
    GRADBUS_CHECK(payload.size() == payload_bytes(index, encoding));
  }
  GRADBUS_RETURN_IF_ERROR(check(
      cuda().copy(tensor_->stream(), travelling(), payload.data(), payload.size()), "a payload"));
  return check(cuda().apply(tensor_->stream(), &input), "decoding");
}

Status DeviceUnits::sum(size_t unit) {
  GRADBUS_RETURN_IF_ERROR(tensor_->sum_unit(unit));
  return tensor_->announce(unit);
}

}  // namespace gradbus
