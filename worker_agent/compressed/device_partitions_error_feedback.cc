// What partitions on a GPU remember: momenta, and what ranks read, write and scale.
#include <algorithm>

#include "compression/cuda/cuda_error_feedback.h"
#include "worker_agent/compressed/device_partitions.h"

namespace gradbus {

// ---- DGC's

Status DevicePartitions::remember(const Partition& partition) {
  CudaMomentum step = cuda_momentum(error_feedback_).value();
  step.gradient = tensor_->front() + partition.first;
  step.momentum = momentum(partition);
  step.residual = kept(partition);
  step.taken = static_cast<uint32_t*>(taken_);
  step.count = partition.elements;
  return check(cuda().remember(tensor_->stream(), &step), "a momentum");
}

// The list that was copied to the host is still there.
Status DevicePartitions::forget(const Partition& partition) {
  const bool masks = error_feedback_.masking && coding(partition, Encoding::kNode).lists();
  const CudaForget input{.list = masks ? static_cast<const uint8_t*>(payload_) : nullptr,
                         .momentum = momentum(partition),
                         .residual = kept(partition),
                         .taken = static_cast<const uint32_t*>(taken_),
                         .count = partition.elements,
                         .entries = masks ? partition.entries : 0};
  return check(cuda().forget(tensor_->stream(), &input), "the end of a momentum");
}

// ---- the ranks'

Status DevicePartitions::zero(float* elements, uint64_t count) {
  for (uint64_t first = 0; first < count; first += kZerosMax) {
    const uint64_t bytes = std::min(kZerosMax, count - first) * sizeof(float);
    GRADBUS_RETURN_IF_ERROR(
        check(cuda().copy(tensor_->stream(), elements + first, zeros_, bytes), "zeros"));
  }
  return {};
}

Status DevicePartitions::add(const float* kept, uint32_t elements, float* to) {
  CudaReduce input{.source_count = 2,
                   .target_count = 1,
                   .count = elements,
                   .dtype = static_cast<uint32_t>(DType::kF32),
                   .op = static_cast<uint32_t>(ReduceOp::kSum)};
  input.sources[0] = input.targets[0] = to;
  input.sources[1] = kept;
  return check(cuda().reduce(tensor_->stream(), &input), "adding what was kept");
}

Status DevicePartitions::read_residual_state(size_t index, ResidualStatePart part) {
  const Partition& partition = partitions_[index];
  for (uint32_t rank = 0; rank < tensor_->local_size(); ++rank)
    GRADBUS_RETURN_IF_ERROR(zero(tensor_->elements(rank) + partition.first, partition.elements));
  float* const to = tensor_->elements(0) + partition.first;
  if (part == ResidualStatePart::kMomentum)
    return momentum_ == nullptr ? Status() : add(momentum(partition), partition.elements, to);
  if (has_residual_ || partition.carries)
    GRADBUS_RETURN_IF_ERROR(add(kept(partition), partition.elements, to));
  return partition.owner_residual == nullptr
             ? Status()
             : add(partition.owner_residual, partition.elements, to);
}

Status DevicePartitions::write_residual_state(size_t index, ResidualStatePart part) {
  Partition& partition = partitions_[index];
  if (part == ResidualStatePart::kMomentum)
    return momentum_ == nullptr ? Status() : keep(partition, momentum(partition));
  partition.carries = !has_residual_;
  if (partition.owner_residual != nullptr)
    GRADBUS_RETURN_IF_ERROR(zero(partition.owner_residual, partition.elements));
  return keep(partition, kept(partition));
}

Status DevicePartitions::keep(const Partition& partition, float* as) {
  return check(cuda().copy(tensor_->stream(), as, tensor_->front() + partition.first,
                           partition.elements * sizeof(float)),
               "what is to be kept");
}

// As ErrorFeedback::rescale(): what is carried stays as it was written.
Status DevicePartitions::scale_residual_state(size_t index, float factor) {
  if (!has_residual_) return {};
  const Partition& partition = partitions_[index];
  GRADBUS_RETURN_IF_ERROR(scale(kept(partition), partition.elements, factor));
  return partition.owner_residual == nullptr
             ? Status()
             : scale(partition.owner_residual, partition.elements, factor);
}

Status DevicePartitions::scale(float* kept, uint32_t elements, float factor) {
  CudaReduce input{.prescale = factor,
                   .source_count = 1,
                   .target_count = 1,
                   .count = elements,
                   .dtype = static_cast<uint32_t>(DType::kF32),
                   .op = static_cast<uint32_t>(ReduceOp::kSum)};
  input.sources[0] = input.targets[0] = kept;
  return check(cuda().reduce(tensor_->stream(), &input), "scaling what is kept");
}

}  // namespace gradbus
