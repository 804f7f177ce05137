// gradbus.h: elements in memory of GPUs.
#include <cstring>

#include "client_lib/src/capi/capi.h"

namespace gradbus::capi {
namespace {

static_assert(static_cast<uint32_t>(DeviceSharing::kLegacy) == GRADBUS_SHARING_LEGACY &&
              static_cast<uint32_t>(DeviceSharing::kDescriptor) == GRADBUS_SHARING_DESCRIPTOR &&
              static_cast<uint32_t>(DeviceSharing::kFabric) == GRADBUS_SHARING_FABRIC);
static_assert(sizeof(gradbus_device_trial::memory) / sizeof(gradbus_device_memory) ==
              kDeviceSharings);

gradbus_device_memory to_c(const SharedDeviceMemory& shared) {
  gradbus_device_memory memory{static_cast<gradbus_sharing>(shared.memory.sharing),
                               shared.descriptor.get(),
                               shared.memory.bytes,
                               {},
                               {}};
  std::memcpy(memory.handle, shared.memory.handle.bytes, sizeof(memory.handle));
  return memory;
}

DeviceId to_id(const unsigned char* device) {
  DeviceId id;
  std::memcpy(id.data(), device, id.size());
  return id;
}

// Where its elements are, on a GPU.
Result<const RankBuffer*> device_rank_buffer_of(const gradbus_tensor& tensor) {
  const Tensor& first = tensor.delayed.first();
  if (first.device_rank_buffer()) return &*first.device_rank_buffer();
  if (!first.why_not_on_device().empty())
    return Status(Code::kUnavailable, first.why_not_on_device());
  return error("O900",
               "tensor \"" + first.spec().name +
                   "\" is in host memory: no device was requested, or this process is alone",
               "set the field device of its gradbus_tensor_spec");
}

Status try_device_of(gradbus_session& session, const DeviceId& id, gradbus_device_trial* given) {
  if (const auto bytes = struct_bytes_of("gradbus_device_trial", given); !bytes.ok())
    return bytes.status();
  const auto offer = gradbus::try_device(*session.session, id);
  if (!offer.ok()) return offer.status();
  gradbus_device_trial trial{};
  for (const SharedDeviceMemory& memory : offer.value()->memory)
    trial.memory[trial.count++] = to_c(memory);
  std::memcpy(trial.event, offer.value()->event.bytes, sizeof(trial.event));
  const std::lock_guard lock(session.tensors_lock);
  session.trials[id] = offer.value();
  return write_struct("gradbus_device_trial", trial, given);
}

Status device_tried(gradbus_session& session, const DeviceId& id, const char* const* why_not) {
  std::shared_ptr<DeviceTrialOffer> offer;
  {
    const std::lock_guard lock(session.tensors_lock);
    const auto found = session.trials.extract(id);
    if (found.empty())
      return error("O900", "this GPU is not being tried", "call gradbus_try_device() first");
    offer = found.mapped();
  }
  std::vector<std::string> reasons;
  for (size_t i = 0; i < offer->memory.size(); ++i)
    reasons.emplace_back(why_not[i] == nullptr ? "" : why_not[i]);
  return session.session->device_offers().report(id, *offer, reasons);
}

}  // namespace
}  // namespace gradbus::capi

using namespace gradbus;
using namespace gradbus::capi;

gradbus_code gradbus_tensor_device_rank_buffer(const gradbus_tensor* tensor,
                                               gradbus_device_rank_buffer* rank_buffer) {
  return guarded(tensor, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"rank_buffer", rank_buffer}}));
    const Result<const RankBuffer*> found = device_rank_buffer_of(*tensor);
    if (!found.ok()) return found.status();
    gradbus_device_rank_buffer known{};
    std::memcpy(known.memory, found.value()->memory.memory.handle.bytes, sizeof(known.memory));
    std::memcpy(known.ready, found.value()->ready.bytes, sizeof(known.ready));
    std::memcpy(known.done, found.value()->done.bytes, sizeof(known.done));
    return write_struct("gradbus_device_rank_buffer", known, rank_buffer);
  });
}

gradbus_code gradbus_tensor_device_memory(const gradbus_tensor* tensor,
                                          gradbus_device_memory* memory) {
  return guarded(tensor, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"memory", memory}}));
    const Result<const RankBuffer*> found = device_rank_buffer_of(*tensor);
    if (!found.ok()) return found.status();
    *memory = to_c(found.value()->memory);
    return {};
  });
}

gradbus_code gradbus_try_device(gradbus_session* session, const unsigned char* device,
                                gradbus_device_trial* trial) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"device", device}, {"trial", trial}}));
    return try_device_of(*session, to_id(device), trial);
  });
}

gradbus_code gradbus_device_tried(gradbus_session* session, const unsigned char* device,
                                  const char* const* why_not) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"device", device}, {"why_not", why_not}}));
    return device_tried(*session, to_id(device), why_not);
  });
}
