// Rounds of powersgd and blocktopk: what the host makes goes to the device before the kernels that
// read it, and what they make comes back, all on the tensor's stream.
#include "common/check.h"
#include "worker_agent/compressed/device_partitions.h"

namespace gradbus {

DeviceLinear::Place DevicePartitions::place(const Partition& partition) const {
  return {.partition = {.gradient = tensor_->front() + partition.first,
                        .residual = has_residual_ ? kept(partition) : nullptr,
                        .decay = error_feedback_.decay,
                        .count = partition.elements},
          .parts = static_cast<std::byte*>(workspace_),
          .vector = payload_};
}

Status DevicePartitions::copy_part(const Partition& partition, const DeviceLinear::Part& part) {
  if (part.bytes == 0) return {};
  return check(cuda().copy(tensor_->stream(), static_cast<std::byte*>(workspace_) + part.offset,
                           partition.lists.data() + part.offset, part.bytes),
               "what is multiplied with");
}

Status DevicePartitions::project(size_t index, uint64_t shared_seed, std::span<std::byte> vector) {
  const Partition& partition = partitions_[index];
  GRADBUS_RETURN_IF_ERROR(sum_up(index));
  return project(index, 0, partition.linear->begin(shared_seed, partition.lists), vector);
}

Result<bool> DevicePartitions::project_again(size_t index, std::span<const std::byte> sum,
                                             std::span<std::byte> vector) {
  const Partition& partition = partitions_[index];
  const std::optional<DeviceLinear::Part> part =
      partition.linear->go_on(sum, partition.lists, vector);
  if (!part) return false;
  GRADBUS_RETURN_IF_ERROR(project(index, 1, *part, vector));
  return true;
}

Status DevicePartitions::project(size_t index, uint32_t round, const DeviceLinear::Part& part,
                                 std::span<std::byte> vector) {
  const Partition& partition = partitions_[index];
  GRADBUS_CHECK(vector.size() == partition.linear->vector_bytes(round));
  GRADBUS_RETURN_IF_ERROR(copy_part(partition, part));
  GRADBUS_RETURN_IF_ERROR(check(
      partition.linear->project(cuda(), tensor_->stream(), round, place(partition)), "encoding"));
  GRADBUS_RETURN_IF_ERROR(
      check(cuda().copy(tensor_->stream(), vector.data(), payload_, vector.size()), "a vector"));
  return tensor_->announce(index);
}

Status DevicePartitions::finish(size_t index, std::span<const std::byte> sum, float scale) {
  const Partition& partition = partitions_[index];
  GRADBUS_RETURN_IF_ERROR(
      copy_part(partition, partition.linear->end(sum, agents_, partition.lists)));
  if (partition.linear->reads_sum())
    GRADBUS_RETURN_IF_ERROR(
        check(cuda().copy(tensor_->stream(), payload_, sum.data(), sum.size()), "a vector"));
  return check(partition.linear->finish(cuda(), tensor_->stream(), place(partition), scale, agents_,
                                        tensor_->front() + partition.first),
               "decoding");
}

}  // namespace gradbus
