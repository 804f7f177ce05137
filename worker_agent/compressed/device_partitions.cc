#include "worker_agent/compressed/device_partitions.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/check.h"
#include "compression/cuda/cuda_selection.h"

namespace gradbus {
namespace {

constexpr size_t kListAlign = 128;

size_t aligned(size_t bytes) { return (bytes + kListAlign - 1) / kListAlign * kListAlign; }

// Of any of a partition's encodings.
size_t list_stride(const std::vector<DeviceCoding>& codings) {
  size_t bytes = 0;
  for (const DeviceCoding& coding : codings)
    if (coding.lists()) bytes = std::max(bytes, coding.device_bytes());
  return aligned(bytes);
}

}  // namespace

// ---- set-up

DevicePartitions::DevicePartitions(std::shared_ptr<DeviceTensor> tensor,
                                   const DevicePartitionsPlan& plan)
    : tensor_(std::move(tensor)),
      agent_index_(plan.agent_index),
      agents_(plan.agents),
      skipped_(plan.compression.communicator == Communicator::kAllReduce ? kPayloadHeaderBytes : 0),
      error_feedback_(error_feedback_options(plan.compression.spec, plan.agents)),
      has_residual_(error_feedback_.kind != ErrorFeedbackKind::kNone) {
  plan_partitions(plan);
}

void DevicePartitions::plan_partitions(const DevicePartitionsPlan& plan) {
  const uint64_t partition_elements = plan.compression.partition_elements;
  PartitionPlan operation;
  operation.spec = plan.compression.spec;
  operation.communicator = plan.compression.communicator;
  operation.agent_index = plan.agent_index;
  operation.agents = plan.agents;
  for (uint64_t first = 0; first < plan.count; first += partition_elements) {
    operation.index = static_cast<uint32_t>(first / partition_elements);
    const CodecShape shape = partition_shape(plan.compression, plan.count, operation.index);
    operation.count = shape.count_max;
    Partition& partition = partitions_.emplace_back(
        Partition{.first = first, .elements = static_cast<uint32_t>(shape.count_max)});
    partition.linear = make_device_linear(plan.compression.spec, shape);
    if (partition.linear == nullptr)
      partition.codings = device_codings(plan.compression, shape, plan.agents);
    for (const Stage& stage : stages(operation)) payloads_bytes_ += stage.bytes;
    if (partition.codings.size() > 1 && has_residual_ && owns(operation.index))
      owned_ += partition.elements;
    plan_memory(partition);
  }
}

std::vector<Stage> DevicePartitions::stages(const PartitionPlan& partition) const {
  const Partition& here = partitions_[partition.index];
  return here.linear == nullptr ? device_stages(partition, here.codings)
                                : vector_stages(partition, here.linear->codec());
}

size_t DevicePartitions::lists_bytes(const Partition& partition) const {
  return partition.linear == nullptr ? agents_ * list_stride(partition.codings)
                                     : aligned(partition.linear->parts_bytes());
}

void DevicePartitions::plan_memory(const Partition& partition) {
  lists_bytes_ += lists_bytes(partition);
  if (partition.linear != nullptr) {
    workspace_bytes_ = std::max(workspace_bytes_, partition.linear->parts_bytes());
    for (const uint32_t round : {0U, 1U})
      device_bytes_ = std::max(device_bytes_, partition.linear->vector_bytes(round));
  }
  for (const DeviceCoding& coding : partition.codings) {
    device_bytes_ = std::max(device_bytes_, coding.device_bytes());
    workspace_bytes_ =
        std::max(workspace_bytes_, cuda_workspace_bytes(input(partition, coding, coding.most)));
  }
}

Result<std::shared_ptr<DevicePartitions>> DevicePartitions::make(
    std::shared_ptr<DeviceTensor> tensor, const DevicePartitionsPlan& plan) {
  std::shared_ptr<DevicePartitions> made(new DevicePartitions(std::move(tensor), plan));
  GRADBUS_RETURN_IF_ERROR(made->set_up(plan.count));
  return made;
}

Status DevicePartitions::allocate(uint64_t bytes, void** memory, const char* what) {
  return check(cuda().allocate(tensor_->home(), bytes, memory), what);
}

Status DevicePartitions::set_up(uint64_t count) {
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
  const std::vector<DeviceCoding>& codings = partitions_.front().codings;
  const bool has_momentum = !codings.empty() && codings.front().on_device.momentum != 0;
  if (has_momentum || error_feedback_.kind == ErrorFeedbackKind::kDgc)
    GRADBUS_RETURN_IF_ERROR(allocate(count * sizeof(float), &momentum_, "memory for a momentum"));
  if (error_feedback_.kind == ErrorFeedbackKind::kDgc)
    GRADBUS_RETURN_IF_ERROR(allocate(sizeof(uint32_t), &taken_, "memory for a word"));
  place_partitions();
  GRADBUS_RETURN_IF_ERROR(
      check(cuda().copy(tensor_->stream(), zeros_, host_ + zeros_at, zeros), "a copy"));
  GRADBUS_RETURN_IF_ERROR(zero(static_cast<float*>(owner_kept_), owned_));
  if (momentum_ != nullptr) GRADBUS_RETURN_IF_ERROR(zero(static_cast<float*>(momentum_), count));
  return zero(static_cast<float*>(kept_), count);
}

void DevicePartitions::place_partitions() {
  std::byte* lists = host_ + payloads_bytes_;
  auto* owner_residual = static_cast<float*>(owner_kept_);
  for (size_t index = 0; index < partitions_.size(); ++index) {
    Partition& partition = partitions_[index];
    partition.lists = {lists, lists_bytes(partition)};
    lists += partition.lists.size();
    if (owner_kept_ == nullptr || !owns(index)) continue;
    partition.owner_residual = owner_residual;
    owner_residual += partition.elements;
  }
}

DevicePartitions::~DevicePartitions() {
  if (!tensor_->quiet()) return;  // which says so itself; memory that is in use is left
  for (void* const memory : {kept_, owner_kept_, momentum_, taken_, payload_, workspace_, zeros_})
    if (memory != nullptr) cuda().free(tensor_->home(), memory);
  if (host_ != nullptr) cuda().free_host(host_);
}

// ---- a round

CudaEncode DevicePartitions::input(const Partition& partition, const DeviceCoding& coding,
                                   const CudaChoice& choice) const {
  return {.codec = coding.on_device,
          .payload = static_cast<uint8_t*>(payload_),
          .workspace = workspace_,
          .count = partition.elements,
          .decay = error_feedback_.decay,
          .choice = choice};
}

std::span<std::byte> DevicePartitions::list(const Partition& partition, uint32_t agent) const {
  const size_t stride = partition.lists.size() / agents_;
  return partition.lists.subspan(agent * stride, stride);
}

Status DevicePartitions::sum_up(size_t index) {
  Partition& partition = partitions_[index];
  GRADBUS_RETURN_IF_ERROR(tensor_->sum_partition(index));
  if (!std::exchange(partition.carries, false)) return {};
  return add(kept(partition), partition.elements, tensor_->front() + partition.first);
}

Status DevicePartitions::encode(size_t index, const EncodingRound& round,
                                std::span<std::byte> payload) {
  const Partition& partition = partitions_[index];
  GRADBUS_RETURN_IF_ERROR(sum_up(index));
  CudaEncode input =
      this->input(partition, Encoding::kNode, round, has_residual_ ? kept(partition) : nullptr);
  if (input.codec.momentum != 0) input.momentum = momentum(partition);
  input.taken = static_cast<const uint32_t*>(taken_);
  if (taken_ != nullptr) GRADBUS_RETURN_IF_ERROR(remember(partition));
  GRADBUS_RETURN_IF_ERROR(encode(index, Encoding::kNode, input, payload));
  return taken_ != nullptr ? forget(partition) : Status();
}

Status DevicePartitions::encode_again(size_t index, const EncodingRound& round,
                                      std::span<std::byte> payload) {
  const Partition& partition = partitions_[index];
  return encode(index, Encoding::kOwner,
                input(partition, Encoding::kOwner, round, partition.owner_residual), payload);
}

CudaEncode DevicePartitions::input(const Partition& partition, Encoding encoding,
                                   const EncodingRound& round, float* residual) const {
  const DeviceCoding& coding = this->coding(partition, encoding);
  CudaEncode made =
      input(partition, coding,
            cuda_choice(*coding.codec, partition.elements, round.number, residual != nullptr));
  GRADBUS_CHECK(made.choice.entries <= coding.most.entries &&
                cuda_workspace_bytes(made) <= workspace_bytes_);
  made.gradient = tensor_->front() + partition.first;
  made.residual = residual;
  made.seed = round.seed;
  return made;
}

Status DevicePartitions::encode(size_t index, Encoding encoding, const CudaEncode& input,
                                std::span<std::byte> payload) {
  Partition& partition = partitions_[index];
  const DeviceCoding& coding = this->coding(partition, encoding);
  GRADBUS_CHECK(payload.size() == payload_bytes(index, encoding));
  GRADBUS_RETURN_IF_ERROR(check(cuda().encode(tensor_->stream(), &input), "encoding"));
  partition.entries = input.choice.entries;
  const size_t list_bytes = cuda_payload_bytes(coding.on_device, 0, partition.entries);
  const auto to = coding.lists() ? list(partition, agent_index_).first(list_bytes) : payload;
  GRADBUS_RETURN_IF_ERROR(
      check(cuda().copy(tensor_->stream(), to.data(), travelling(), to.size()), "a payload"));
  return tensor_->announce(index);
}

size_t DevicePartitions::finish(size_t index, Encoding encoding, std::span<std::byte> payload) {
  const Partition& partition = partitions_[index];
  const DeviceCoding& coding = this->coding(partition, encoding);
  if (!coding.lists()) return payload.size();
  return payload_of_list(coding.on_device, partition.elements, partition.entries,
                         list(partition, agent_index_), payload);
}

// A list is no longer than its payload needs; of one that is not finite, a header.
Status DevicePartitions::decode(size_t index, Encoding encoding, uint32_t agent,
                                std::span<const std::byte> payload, const Decoded& decoded) {
  const Partition& partition = partitions_[index];
  const DeviceCoding& coding = this->coding(partition, encoding);
  CudaApply input{.codec = coding.on_device,
                  .payload = static_cast<const uint8_t*>(payload_),
                  .to = tensor_->front() + partition.first,
                  .count = partition.elements,
                  .scale = decoded.scale,
                  .add = decoded.adds ? 1U : 0U};
  if (coding.lists()) {
    input.entries = payload_header(payload).entries;
    const std::span<std::byte> taken = list(partition, agent);
    payload = taken.first(list_of_payload(payload, input.entries, taken));
  } else {
    GRADBUS_CHECK(payload.size() == payload_bytes(index, encoding));
  }
  GRADBUS_RETURN_IF_ERROR(check(
      cuda().copy(tensor_->stream(), travelling(), payload.data(), payload.size()), "a payload"));
  return check(cuda().apply(tensor_->stream(), &input), "decoding");
}

Status DevicePartitions::sum(size_t partition) {
  GRADBUS_RETURN_IF_ERROR(tensor_->sum_partition(partition));
  return tensor_->announce(partition);
}

}  // namespace gradbus
