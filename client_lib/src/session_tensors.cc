// The tensors of a session by name: how they are asked for, and their end. At the end the agent is
// told and the tensor is deleted here. Its memory may still be used by other ranks, so the agent
// frees it when all have unregistered it.
#include <algorithm>

#include "client_lib/src/session.h"
#include "common/errors.h"

namespace gradbus {
namespace {

Status in_use(const std::string& name) {
  return error("O905", "tensor \"" + name + "\" cannot be unregistered: it is in use",
               "wait for its operations first");
}

// Of an ad-hoc operation: "loss", "loss#len", "loss#4096".
bool belongs_to(const std::string& tensor, const std::string& name) {
  return tensor.starts_with(name) && (tensor.size() == name.size() || tensor[name.size()] == '#');
}

}  // namespace

Result<std::shared_ptr<Registration>> Session::request(const TensorSpec& spec,
                                                       std::optional<DeviceId> device) {
  const std::lock_guard lock(control_);
  auto registration = request_locked(spec, device);
  if (registration.ok()) registration.value()->held = true;
  return registration;
}

Result<std::shared_ptr<Registration>> Session::request_turn(const TensorSpec& spec,
                                                            uint64_t& turn) {
  const std::lock_guard lock(control_);
  auto registration = request_locked(spec, {});
  if (registration.ok()) turn = registration.value()->taken.fetch_add(1);
  return registration;
}

Result<std::shared_ptr<Registration>> Session::request_locked(const TensorSpec& spec,
                                                              std::optional<DeviceId> device) {
  const auto found = registrations_.find(spec.name);
  if (found != registrations_.end() && found->second->serves(spec, device)) return found->second;
  GRADBUS_RETURN_IF_ERROR(check_spec(spec, world_size()));
  std::shared_ptr<Registration>& known = registrations_[spec.name];
  if (known != nullptr && known->settled() && known->failure.ok() && !known->held)
    replaced_.push_back(known);
  known = std::make_shared<Registration>(spec, device);
  const std::shared_ptr<Registration> registration = known;
  const Status asked = connection_ ? ask(registration) : settle_alone(*registration);
  if (asked.ok()) return registration;
  registrations_.erase(spec.name);
  return asked;
}

std::shared_ptr<Segment>* Session::find_memory(Tensor& tensor) {
  const std::byte* const data = tensor.data();
  const auto found = std::ranges::find_if(arena_, [&](const auto& segment) {
    return segment != nullptr && data >= segment->at(0) && data < segment->at(segment->bytes());
  });
  return found == arena_.end() ? nullptr : &*found;
}

std::shared_ptr<Segment> Session::memory_of(Tensor& tensor) {
  const std::lock_guard lock(control_);
  const std::shared_ptr<Segment>* const found = find_memory(tensor);
  return found == nullptr ? nullptr : *found;
}

Status Session::check_rest(std::span<Tensor* const> tensors) const {
  for (const Tensor* tensor : tensors)
    if (tensor->in_flight() && !failed_.load()) return in_use(tensor->spec().name);
  return {};
}

Status Session::unregister(std::span<Tensor* const> tensors) {
  const std::lock_guard lock(control_);
  GRADBUS_RETURN_IF_ERROR(check_rest(tensors));
  for (Tensor* tensor : tensors) GRADBUS_RETURN_IF_ERROR(remove(*tensor));
  return {};
}

Status Session::unregister_but_views(std::span<Tensor* const> tensors) {
  const std::lock_guard lock(control_);
  GRADBUS_RETURN_IF_ERROR(check_rest(tensors));
  for (Tensor* tensor : tensors) GRADBUS_RETURN_IF_ERROR(send_unregister(*tensor, true));
  return {};
}

Result<size_t> Session::unregister(const std::string& name) {
  const std::lock_guard lock(control_);
  std::vector<std::shared_ptr<Registration>> found;
  const auto look_at = [&](const std::shared_ptr<Registration>& known) {
    if (belongs_to(known->spec.name, name) && !known->held && known->taken.load() > 0)
      found.push_back(known);
  };
  for (const auto& [unused, registration] : registrations_) look_at(registration);
  std::ranges::for_each(replaced_, look_at);
  for (const auto& registration : found)
    if (!registration->idle()) return in_use(registration->spec.name);
  std::erase_if(found, [](const auto& registration) { return !registration->failure.ok(); });
  for (const auto& registration : found) GRADBUS_RETURN_IF_ERROR(remove(*registration->tensor));
  return found.size();
}

// `by` has been given its tensor: those that had its name before and are in nobody's use go. The
// rank may have got one of them back, if it was refused what it asked for in between.
Status Session::remove_replaced(const Registration& by) {
  if (replaced_.empty() || !by.failure.ok()) return {};
  std::erase_if(replaced_, [&](const auto& known) { return known->tensor == by.tensor; });
  std::vector<Tensor*> unused;
  for (const auto& known : replaced_)
    if (known->spec.name == by.spec.name && known->idle()) unused.push_back(known->tensor);
  for (Tensor* tensor : unused) GRADBUS_RETURN_IF_ERROR(remove(*tensor));
  return {};
}

// With control_ held. A failed job frees its memory as a whole.
Status Session::send_unregister(Tensor& tensor, bool viewed) {
  if (connection_ && !failed_.load()) {
    auto packet = make_packet<UnregisterPacket>();
    packet.tensor = tensor.id();
    packet.viewed = viewed ? 1 : 0;
    GRADBUS_RETURN_IF_ERROR(connection_->send(&packet, sizeof(packet)));
  }
  const auto registration = registrations_.find(tensor.spec().name);
  if (registration != registrations_.end() && registration->second->settled() &&
      registration->second->tensor == &tensor)
    registrations_.erase(registration);
  return {};
}

Status Session::remove(Tensor& tensor) {
  GRADBUS_RETURN_IF_ERROR(send_unregister(tensor, false));
  std::erase_if(replaced_, [&](const auto& known) { return known->tensor == &tensor; });
  const std::lock_guard lock(completion_lock_);
  const uint32_t id = tensor.id();
  if (auto* const alone = connection_ ? nullptr : find_memory(tensor)) alone->reset();
  tensor_by_id_[id] = nullptr;
  std::erase_if(tensors_, [&](const auto& known) { return known.get() == &tensor; });
  return {};
}

}  // namespace gradbus
