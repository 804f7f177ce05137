// What units on a GPU remember: momenta, and what ranks read, write and scale.
#include <algorithm>

#include "compression/cuda/cuda_memory.h"
#include "worker_agent/compressed/device_units.h"

namespace gradbus {

// ---- DGC's

Status DeviceUnits::remember(const Unit& unit) {
  CudaMomentum step = cuda_momentum(memory_).value();
  step.gradient = tensor_->front() + unit.first;
  step.momentum = momentum(unit);
  step.residual = kept(unit);
  step.taken = static_cast<uint32_t*>(taken_);
  step.count = unit.elements;
  return check(cuda().remember(tensor_->stream(), &step), "a momentum");
}

// The list that was copied to the host is still there.
Status DeviceUnits::forget(const Unit& unit) {
  const bool masks = memory_.masking && coding(unit, Encoding::kNode).lists();
  const CudaForget input{.list = masks ? static_cast<const uint8_t*>(payload_) : nullptr,
                         .momentum = momentum(unit),
                         .residual = kept(unit),
                         .taken = static_cast<const uint32_t*>(taken_),
                         .count = unit.elements,
                         .entries = masks ? unit.entries : 0};
  return check(cuda().forget(tensor_->stream(), &input), "the end of a momentum");
}

// ---- the ranks'

Status DeviceUnits::zero(float* elements, uint64_t count) {
  for (uint64_t first = 0; first < count; first += kZerosMax) {
    const uint64_t bytes = std::min(kZerosMax, count - first) * sizeof(float);
    GRADBUS_RETURN_IF_ERROR(
        check(cuda().copy(tensor_->stream(), elements + first, zeros_, bytes), "zeros"));
  }
  return {};
}

Status DeviceUnits::add(const float* kept, uint32_t elements, float* to) {
  CudaReduce input{.source_count = 2,
                   .target_count = 1,
                   .count = elements,
                   .dtype = static_cast<uint32_t>(DType::kF32),
                   .op = static_cast<uint32_t>(ReduceOp::kSum)};
  input.sources[0] = input.targets[0] = to;
  input.sources[1] = kept;
  return check(cuda().reduce(tensor_->stream(), &input), "adding what was kept");
}

Status DeviceUnits::read_memory(size_t index, MemoryPart part) {
  const Unit& unit = units_[index];
  for (uint32_t rank = 0; rank < tensor_->local_size(); ++rank)
    GRADBUS_RETURN_IF_ERROR(zero(tensor_->elements(rank) + unit.first, unit.elements));
  float* const to = tensor_->elements(0) + unit.first;
  if (part == MemoryPart::kMomentum)
    return momentum_ == nullptr ? Status() : add(momentum(unit), unit.elements, to);
  if (has_residual_ || unit.carries) GRADBUS_RETURN_IF_ERROR(add(kept(unit), unit.elements, to));
  return unit.owner_residual == nullptr ? Status() : add(unit.owner_residual, unit.elements, to);
}

Status DeviceUnits::write_memory(size_t index, MemoryPart part) {
  Unit& unit = units_[index];
  if (part == MemoryPart::kMomentum)
    return momentum_ == nullptr ? Status() : keep(unit, momentum(unit));
  unit.carries = !has_residual_;
  if (unit.owner_residual != nullptr)
    GRADBUS_RETURN_IF_ERROR(zero(unit.owner_residual, unit.elements));
  return keep(unit, kept(unit));
}

Status DeviceUnits::keep(const Unit& unit, float* as) {
  return check(cuda().copy(tensor_->stream(), as, tensor_->front() + unit.first,
                           unit.elements * sizeof(float)),
               "what is to be kept");
}

// As Memory::rescale(): what is carried stays as it was written.
Status DeviceUnits::scale_memory(size_t index, float factor) {
  if (!has_residual_) return {};
  const Unit& unit = units_[index];
  GRADBUS_RETURN_IF_ERROR(scale(kept(unit), unit.elements, factor));
  return unit.owner_residual == nullptr ? Status()
                                        : scale(unit.owner_residual, unit.elements, factor);
}

Status DeviceUnits::scale(float* kept, uint32_t elements, float factor) {
  CudaReduce input{.before = factor,
                   .source_count = 1,
                   .target_count = 1,
                   .count = elements,
                   .dtype = static_cast<uint32_t>(DType::kF32),
                   .op = static_cast<uint32_t>(ReduceOp::kSum)};
  input.sources[0] = input.targets[0] = kept;
  return check(cuda().reduce(tensor_->stream(), &input), "scaling what is kept");
}

}  // namespace gradbus
