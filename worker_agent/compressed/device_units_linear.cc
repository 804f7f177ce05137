// Rounds of powersgd and blocktopk: what the host makes goes to the device before the kernels that
// read it, and what they make comes back, all on the tensor's stream.
#include "common/check.h"
#include "worker_agent/compressed/device_units.h"

namespace gradbus {

DeviceLinear::Place DeviceUnits::place(const Unit& unit) const {
  return {.unit = {.gradient = tensor_->front() + unit.first,
                   .residual = has_residual_ ? kept(unit) : nullptr,
                   .decay = memory_.decay,
                   .count = unit.elements},
          .parts = static_cast<std::byte*>(workspace_),
          .vector = payload_};
}

Status DeviceUnits::copy_part(const Unit& unit, const DeviceLinear::Part& part) {
  if (part.bytes == 0) return {};
  return check(cuda().copy(tensor_->stream(), static_cast<std::byte*>(workspace_) + part.offset,
                           unit.lists.data() + part.offset, part.bytes),
               "what is multiplied with");
}

Status DeviceUnits::project(size_t index, uint64_t shared_seed, std::span<std::byte> vector) {
  const Unit& unit = units_[index];
  GRADBUS_RETURN_IF_ERROR(sum_up(index));
  return project(index, 0, unit.linear->begin(shared_seed, unit.lists), vector);
}

Result<bool> DeviceUnits::project_again(size_t index, std::span<const std::byte> sum,
                                        std::span<std::byte> vector) {
  const Unit& unit = units_[index];
  const std::optional<DeviceLinear::Part> part = unit.linear->go_on(sum, unit.lists, vector);
  if (!part) return false;
  GRADBUS_RETURN_IF_ERROR(project(index, 1, *part, vector));
  return true;
}

Status DeviceUnits::project(size_t index, uint32_t round, const DeviceLinear::Part& part,
                            std::span<std::byte> vector) {
  const Unit& unit = units_[index];
  GRADBUS_CHECK(vector.size() == unit.linear->vector_bytes(round));
  GRADBUS_RETURN_IF_ERROR(copy_part(unit, part));
  GRADBUS_RETURN_IF_ERROR(
      check(unit.linear->project(cuda(), tensor_->stream(), round, place(unit)), "encoding"));
  GRADBUS_RETURN_IF_ERROR(
      check(cuda().copy(tensor_->stream(), vector.data(), payload_, vector.size()), "a vector"));
  return tensor_->announce(index);
}

Status DeviceUnits::finish(size_t index, std::span<const std::byte> sum, float scale) {
  const Unit& unit = units_[index];
  GRADBUS_RETURN_IF_ERROR(copy_part(unit, unit.linear->end(sum, agents_, unit.lists)));
  if (unit.linear->reads_sum())
    GRADBUS_RETURN_IF_ERROR(
        check(cuda().copy(tensor_->stream(), payload_, sum.data(), sum.size()), "a vector"));
  return check(unit.linear->finish(cuda(), tensor_->stream(), place(unit), scale, agents_,
                                   tensor_->front() + unit.first),
               "decoding");
}

}  // namespace gradbus
