#include "client_lib/src/rank_tensors.h"

#include <algorithm>

#include "common/errors.h"
#include "common/policy/sync_mode.h"
#include "proto/tensor_ids.h"
#include "proto/tensor_names.h"

namespace gradbus {
namespace {

Status in_use(const std::string& name) {
  return error("O905", "tensor \"" + name + "\" cannot be unregistered: it is in use",
               "wait for its operations first");
}

// Of an ad-hoc operation: also "loss#len" and "loss#blocks4096", but not the user's own "loss#2".
bool belongs_to(const std::string& tensor, const std::string& name) {
  return tensor == name || shown_name(tensor) == name;
}

}  // namespace

Result<std::shared_ptr<Registration>> RankTensors::request(const TensorSpec& spec,
                                                           std::optional<DeviceId> device) {
  const std::lock_guard lock(socket_.lock());
  auto registration = request_locked(spec, device);
  if (registration.ok()) registration.value()->held = true;
  return registration;
}

Result<std::shared_ptr<Registration>> RankTensors::request_turn(const TensorSpec& spec,
                                                                uint64_t& turn) {
  const std::lock_guard lock(socket_.lock());
  auto registration = request_locked(spec, {});
  if (registration.ok()) turn = registration.value()->taken.fetch_add(1);
  return registration;
}

Result<std::shared_ptr<Registration>> RankTensors::request_locked(const TensorSpec& spec,
                                                                  std::optional<DeviceId> device) {
  const auto found = registrations_.find(spec.name);
  if (found != registrations_.end() && found->second->serves(spec, device)) return found->second;
  GRADBUS_RETURN_IF_ERROR(check_spec(spec, joined_.world_size));
  std::shared_ptr<Registration>& known = registrations_[spec.name];
  if (known != nullptr && known->settled() && known->failure.ok() && !known->held)
    replaced_.push_back(known);
  known = std::make_shared<Registration>(spec, device);
  const std::shared_ptr<Registration> registration = known;
  const Status asked = socket_.is_open() ? ask(registration) : settle_alone(*registration);
  if (asked.ok()) return registration;
  registrations_.erase(spec.name);
  return asked;
}

Status RankTensors::ask(const std::shared_ptr<Registration>& registration) {
  const TensorSpec& spec = registration->spec;
  auto packet = make_packet<RegisterPacket>(socket_.next_request());
  set_text(packet.name, spec.name);
  packet.count = spec.count;
  packet.dtype = static_cast<uint8_t>(spec.dtype);
  packet.op = static_cast<uint8_t>(spec.op);
  packet.collective = static_cast<uint8_t>(spec.kind);
  packet.root = spec.root;
  packet.row_elements = spec.row_elements;
  packet.prescale = spec.prescale;
  packet.postscale = spec.postscale;
  packet.columns = spec.columns;
  set_text(packet.compression, spec.compression);
  set_text(packet.mode, spec.mode);
  set_text(packet.shape, spec.shape);
  packet.priority = spec.priority;
  packet.result_priority = spec.result_priority;
  packet.budget_bytes = spec.budget_bytes;
  packet.wants_device = registration->device.has_value() ? 1 : 0;
  packet.device = registration->device.value_or(DeviceId{});
  GRADBUS_RETURN_IF_ERROR(socket_.send(packet));
  asked_[packet.header.request] = registration;
  ++unsettled_;
  ++registry_.unsettled;
  return {};
}

Status RankTensors::settle_alone(Registration& registration) {
  if (const auto mode = parse_mode(registration.spec.mode);
      mode.ok() && mode.value().holds_parameters())
    return error("O912", "tensor \"" + registration.spec.name + "\" has mode " +
                             registration.spec.mode + ", and this process is alone");
  const size_t local_reduction = local_reduction_bytes(1, 1);
  const Result<uint32_t> segment =
      arena_.add_own(local_reduction + registration.spec.bytes() + kDataAlignBytes);
  if (!segment.ok()) return segment.status();
  RegisteredPacket place;
  place.tensor = static_cast<uint32_t>(tensor_by_id_.size());
  place.segment = segment.value();
  place.chunks = 1;
  place.chunk_elements = std::max<uint64_t>(registration.spec.count, 1);
  place.data_offset = local_reduction;
  return settle(registration, place);
}

// ---- answers of the agent

Status RankTensors::take_registered(Packet& packet) {
  const Result<RegisteredPacket> place = packet.as<RegisteredPacket>();
  if (!place.ok()) return place.status();
  const auto asked = asked_.extract(packet.header.request);
  if (asked.empty()) return {};
  --unsettled_;
  --registry_.unsettled;
  GRADBUS_RETURN_IF_ERROR(settle(*asked.mapped(), place.value(), std::move(packet.fds)));
  return remove_replaced(*asked.mapped());
}

Status RankTensors::settle(Registration& registration, const RegisteredPacket& place,
                           std::vector<Fd> fds) {
  if (place.code != 0) {
    registration.failure = Status(static_cast<Code>(place.code), get_text(place.text));
    registration.done.store(true, std::memory_order_release);
    return {};
  }
  if (place.segment >= arena_.size() || place.chunk_elements == 0 || place.tensor >= kTensorIdsMax)
    return bad_packet("tensor \"" + registration.spec.name + "\" lies in segment " +
                      std::to_string(place.segment) + " of " + std::to_string(arena_.size()));
  const LocalReduction local_reduction =
      make_local_reduction(registration.spec, arena_.at(place.segment), place);
  const std::lock_guard lock(completion_lock_);
  if (tensor_by_id_.size() <= place.tensor) tensor_by_id_.resize(place.tensor + 1);
  Tensor*& tensor = tensor_by_id_[place.tensor];
  // Known already when its name was asked for with other arguments in between, and refused.
  if (tensor == nullptr || tensor->spec() != registration.spec) {
    tensors_.push_back(
        std::make_unique<Tensor>(session_, registration.spec, place.tensor, local_reduction));
    tensor = tensors_.back().get();
    if (place.on_device != 0) {
      auto memory = take_device_memory(place.rank_buffer.memory, fds);
      if (!memory.ok()) return memory.status();
      tensor->put_on_device({memory.take(), place.rank_buffer.ready, place.rank_buffer.done});
    }
    if (place.on_device == 0) tensor->say_why_not_on_device(get_text(place.text));
  }
  registration.tensor = tensor;
  registration.done.store(true, std::memory_order_release);
  return {};
}

LocalReduction RankTensors::make_local_reduction(const TensorSpec& spec, const Segment& segment,
                                                 const RegisteredPacket& place) const {
  LocalReductionShape shape = make_local_reduction_shape(
      spec, place.chunk_elements,
      {joined_.world_size, joined_.local_size,
       socket_.is_open() && spec.leaves_node(joined_.agents), place.on_device != 0});
  shape.data_stride = place.data_stride;
  return LocalReduction(segment.at(place.local_reduction_offset), segment.at(place.data_offset),
                        shape);
}

std::shared_ptr<Segment> RankTensors::memory_of(Tensor& tensor) {
  const std::lock_guard lock(socket_.lock());
  return arena_.with(tensor.data());
}

// ---- rounds

// On one node the ranks do the work themselves; with cores to spare the agent is asked to help
// while this thread computes on.
Status RankTensors::submit(Tensor& tensor, Submission record) {
  if (!channel_.is_open()) return {};
  channel_.count_operation(tensor.spec().bytes());
  channel_.count_step(tensor.round());
  const LocalReductionShape& shape = tensor.local_reduction().shape();
  const bool assist = joined_.cores > joined_.local_size && shape.chunks > 1 &&
                      tensor.spec().kind == CollectiveKind::kAllReduce;
  if (!shape.remote && !assist) return {};
  record.tensor = tensor.id();
  record.round = tensor.round();
  return channel_.submit(record, shape.remote);  // help is optional
}

void RankTensors::take_completions() {
  const std::lock_guard lock(completion_lock_);
  CompletionRecord record;
  while (channel_.pop(record))
    if (record.tensor < tensor_by_id_.size() && tensor_by_id_[record.tensor] != nullptr)
      tensor_by_id_[record.tensor]->complete(record.round, static_cast<Code>(record.code),
                                             record.staleness);
}

// ---- the end of tensors

Status RankTensors::check_rest(std::span<Tensor* const> tensors) const {
  for (const Tensor* tensor : tensors)
    if (tensor->in_flight() && !socket_.failed()) return in_use(tensor->spec().name);
  return {};
}

Status RankTensors::unregister(std::span<Tensor* const> tensors) {
  const std::lock_guard lock(socket_.lock());
  GRADBUS_RETURN_IF_ERROR(check_rest(tensors));
  for (Tensor* tensor : tensors) GRADBUS_RETURN_IF_ERROR(remove(*tensor));
  return {};
}

Status RankTensors::unregister_but_views(std::span<Tensor* const> tensors) {
  const std::lock_guard lock(socket_.lock());
  GRADBUS_RETURN_IF_ERROR(check_rest(tensors));
  for (Tensor* tensor : tensors) GRADBUS_RETURN_IF_ERROR(send_unregister(*tensor, true));
  return {};
}

Result<size_t> RankTensors::unregister(const std::string& name) {
  const std::lock_guard lock(socket_.lock());
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
Status RankTensors::remove_replaced(const Registration& by) {
  if (replaced_.empty() || !by.failure.ok()) return {};
  std::erase_if(replaced_, [&](const auto& known) { return known->tensor == by.tensor; });
  std::vector<Tensor*> unused;
  for (const auto& known : replaced_)
    if (known->spec.name == by.spec.name && known->idle()) unused.push_back(known->tensor);
  for (Tensor* tensor : unused) GRADBUS_RETURN_IF_ERROR(remove(*tensor));
  return {};
}

// A failed job frees its memory as a whole.
Status RankTensors::send_unregister(Tensor& tensor, bool viewed) {
  if (socket_.is_open() && !socket_.failed()) {
    auto packet = make_packet<UnregisterPacket>();
    packet.tensor = tensor.id();
    packet.viewed = viewed ? 1 : 0;
    GRADBUS_RETURN_IF_ERROR(socket_.send(packet));
  }
  const auto registration = registrations_.find(tensor.spec().name);
  if (registration != registrations_.end() && registration->second->settled() &&
      registration->second->tensor == &tensor)
    registrations_.erase(registration);
  return {};
}

Status RankTensors::remove(Tensor& tensor) {
  GRADBUS_RETURN_IF_ERROR(send_unregister(tensor, false));
  std::erase_if(replaced_, [&](const auto& known) { return known->tensor == &tensor; });
  const std::lock_guard lock(completion_lock_);
  const uint32_t id = tensor.id();
  if (!socket_.is_open()) arena_.remove(arena_.with(tensor.data()));
  tensor_by_id_[id] = nullptr;
  std::erase_if(tensors_, [&](const auto& known) { return known.get() == &tensor; });
  return {};
}

}  // namespace gradbus
