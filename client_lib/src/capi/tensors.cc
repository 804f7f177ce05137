// gradbus.h: registered tensors.
#include <cmath>
#include <cstring>

#include "client_lib/src/capi/capi.h"
#include "common/policy/sync_mode.h"
#include "proto/tensor_ids.h"

namespace gradbus::capi {
namespace {

// Zero, the value of a field that older callers do not know, means "the usual".
Result<TensorSpec> to_spec(const Session& session, const gradbus_tensor_spec& given) {
  if (given.name == nullptr) return missing("specs[].name");
  const auto or_one = [](auto value) { return value == 0 ? decltype(value){1} : value; };
  TensorSpec spec{given.name, given.count, narrow<DType>(given.dtype), narrow<ReduceOp>(given.op)};
  if (given.collective != 0) spec.kind = narrow<CollectiveKind>(given.collective);
  if (!reduces(spec.kind))
    return error("O900",
                 "tensor \"" + spec.name + "\": collective number " +
                     std::to_string(given.collective) + " is no reduction",
                 "register all-reduce, reduce and reduce-scatter; use gradbus_start_operations() "
                 "for others");
  spec.root = has_root(spec.kind) ? static_cast<uint32_t>(given.root) : 0;
  spec.prescale = or_one(given.prescale);
  spec.postscale = or_one(given.postscale);
  if (spec.kind == CollectiveKind::kReduceScatter) spec.row_elements = or_one(given.row_elements);
  spec.columns = given.columns;
  spec.compression = session.options().compression_for(spec, given.compression);
  if (spec.compression.empty()) spec.columns = 0;
  spec.priority = given.priority;
  spec.result_priority = given.result_priority;
  spec.budget_bytes = given.budget_bytes;
  return spec;
}

// A tensor as it was asked for: one registration for each of its slots.
struct Asked {
  std::vector<std::shared_ptr<Registration>> slots;
};

Status check_mode(const TensorSpec& spec, const SyncMode& mode) {
  if (mode.is_local())
    return error("O911",
                 "tensor \"" + spec.name + "\": mode " + mode.canonical +
                     " is for parameters that the caller updates",
                 "register a synchronous all-reduce and average parameters with it every few "
                 "steps; PyTorch's DistributedOptimizer has this mode built in");
  if (mode.dc > 0)
    return error("O911",
                 "tensor \"" + spec.name + "\": mode " + mode.canonical +
                     " compensates for steps that the caller makes",
                 "register it without dc and correct the gradient that comes back; PyTorch's "
                 "DistributedOptimizer has this built in");
  if (mode.kind == SyncMode::Kind::kSync || spec.kind == CollectiveKind::kAllReduce) return {};
  return error("O911",
               "tensor \"" + spec.name + "\": mode " + mode.canonical + " is for all-reduces");
}

Result<Asked> ask(Session& session, const gradbus_tensor_spec& given) {
  Result<TensorSpec> spec = to_spec(session, given);
  if (!spec.ok()) return spec.status();
  const Result<SyncMode> mode = parse_mode(given.mode == nullptr ? "" : given.mode);
  if (!mode.ok()) return mode.status();
  GRADBUS_RETURN_IF_ERROR(check_mode(spec.value(), mode.value()));
  std::optional<DeviceId> device;
  if (given.device != nullptr) {
    device.emplace();
    std::memcpy(device->data(), given.device, device->size());
    if (mode.value().delay > 0)
      return error("O900",
                   "tensor \"" + spec.value().name + "\": mode " + mode.value().canonical +
                       " keeps results in shared memory",
                   "register it without a device");
  }
  Asked asked;
  for (uint32_t slot = 0; slot <= mode.value().delay; ++slot) {
    TensorSpec one = spec.value();
    if (mode.value().kind != SyncMode::Kind::kSync) one.mode = mode.value().canonical;
    if (slot > 0) one.name += "@" + std::to_string(slot);
    auto registration = session.tensors().request(one, device);
    if (!registration.ok()) return registration.status();
    asked.slots.push_back(registration.take());
  }
  return asked;
}

gradbus_tensor* tensor_of(gradbus_session& session, const Asked& asked) {
  std::vector<Tensor*> slots;
  for (const auto& registration : asked.slots) slots.push_back(registration->tensor);
  const std::lock_guard lock(session.tensors_lock);
  auto& known = session.tensors[{slots.front(), slots.size()}];
  if (known == nullptr) {
    auto views = std::make_shared<TensorViews>(*session.session, slots);
    std::string name = slots.front()->spec().name;
    known.reset(new gradbus_tensor{&session, session.session.get(), /*unregistered=*/false,
                                   DelayedTensor(std::move(slots)), std::move(name),
                                   std::move(views)});
  }
  return known.get();
}

Status register_all(gradbus_session& session, const gradbus_tensor_spec* specs, size_t n,
                    gradbus_tensor** tensors) {
  StructArray<gradbus_tensor_spec> known;
  GRADBUS_RETURN_IF_ERROR(known.read("gradbus_tensor_spec", specs, n, {}));
  session.session->waits().submitting_threads().note_current_thread();
  std::vector<Asked> all;
  for (const gradbus_tensor_spec& spec : known.all()) {
    Result<Asked> asked = ask(*session.session, spec);
    if (!asked.ok()) return asked.status();
    all.push_back(asked.take());
  }
  const Nanos deadline = monotonic_now() + session.session->options().op_timeout;
  for (size_t i = 0; i < n; ++i) {
    for (const auto& slot : all[i].slots) {
      WaitClock clock;
      GRADBUS_RETURN_IF_ERROR(
          session.session->waits().until_settled(*slot, deadline - monotonic_now(), clock));
    }
    tensors[i] = tensor_of(session, all[i]);
  }
  return {};
}

// The handle stays: calls with it say that it was unregistered. Its slots must not be used.
Status unregister(gradbus_tensor& tensor) {
  gradbus_session& session = *tensor.owner;
  const std::lock_guard lock(session.tensors_lock);
  if (tensor.unregistered) return unregistered_error(tensor);
  if (tensor.delayed.busy() && session.session->socket().failure().ok())
    return error("O905", "tensor \"" + tensor.name + "\" cannot be unregistered: it is in use",
                 "wait for its last step, and drain it if its mode is delayed");
  const std::span<Tensor* const> slots = tensor.delayed.all();
  const auto known = session.tensors.find({slots.front(), slots.size()});
  GRADBUS_RETURN_IF_ERROR(tensor.views->unregister());
  tensor.unregistered = true;
  session.unregistered.push_back(std::move(known->second));
  session.tensors.erase(known);
  return {};
}

gradbus_code start_optimizer_state(gradbus_tensor* tensor, PsRequest kind, uint32_t part) {
  return guarded(tensor, [&] { return tensor->delayed.start_optimizer_state(kind, part); });
}

gradbus_code start_residual_state(gradbus_tensor* tensor, SubmissionKind kind,
                                  gradbus_residual_state part) {
  return guarded(tensor, [&]() -> Status {
    if (part != GRADBUS_RESIDUAL && part != GRADBUS_MOMENTUM)
      return error("O900", "part " + std::to_string(part) + " of a residual state is unknown",
                   "use GRADBUS_RESIDUAL or GRADBUS_MOMENTUM");
    return tensor->delayed.start_residual_state(kind, part == GRADBUS_RESIDUAL
                                                          ? ResidualStatePart::kResidual
                                                          : ResidualStatePart::kMomentum);
  });
}

}  // namespace
}  // namespace gradbus::capi

using namespace gradbus;
using namespace gradbus::capi;

gradbus_code gradbus_register(gradbus_session* session, const gradbus_tensor_spec* specs, size_t n,
                              gradbus_tensor** tensors) {
  return guarded(session, [&]() -> Status {
    if (n > 0) GRADBUS_RETURN_IF_ERROR(check_given({{"specs", specs}, {"tensors", tensors}}));
    GRADBUS_RETURN_IF_ERROR(check_number(n, kTensorIdsMax));
    return register_all(*session, specs, n, tensors);
  });
}

gradbus_code gradbus_unregister(gradbus_tensor* tensor) {
  return guarded(tensor, [&]() -> Status { return unregister(*tensor); });
}

gradbus_code gradbus_unregister_name(gradbus_session* session, const char* name) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"name", name}}));
    const Result<size_t> found = session->session->tensors().unregister(std::string(name));
    if (!found.ok() || found.value() > 0) return found.status();
    return error(
        "O900", std::string("no operation has used the name \"") + name + "\"",
        "pass the name of an ad-hoc operation; a registered tensor is unregistered itself");
  });
}

void* gradbus_tensor_data(gradbus_tensor* tensor) {
  const Use use(tensor);
  return use ? tensor->delayed.data(tensor->delayed.current()) : nullptr;
}

uint32_t gradbus_tensor_delay(const gradbus_tensor* tensor) {
  const Use use(tensor);
  return use ? tensor->delayed.delay() : 0;
}

uint32_t gradbus_tensor_slot(const gradbus_tensor* tensor) {
  const Use use(tensor);
  return use ? tensor->delayed.current() : 0;
}

void* gradbus_slot_data(gradbus_tensor* tensor, uint32_t slot) {
  const Use use(tensor);
  return use && slot <= tensor->delayed.delay() ? tensor->delayed.data(slot) : nullptr;
}

int64_t gradbus_staleness(const gradbus_tensor* tensor) {
  const Use use(tensor);
  return use ? tensor->delayed.staleness() : -1;
}

gradbus_code gradbus_start(gradbus_tensor* tensor) {
  return guarded(tensor, [&]() -> Status { return tensor->delayed.start(); });
}

gradbus_code gradbus_test(gradbus_tensor* tensor) {
  return guarded(tensor, [&]() -> Status {
    if (!tensor->delayed.in_flight()) return {};
    tensor->session->progress();
    if (tensor->delayed.attempt()) return tensor->delayed.wait(0);
    GRADBUS_RETURN_IF_ERROR(tensor->session->socket().failure());
    return Status(Code::kBusy, "\"" + tensor->delayed.first().spec().name + "\" is not finished");
  });
}

gradbus_code gradbus_wait(gradbus_tensor* tensor, int64_t timeout_ms) {
  return guarded(tensor, [&]() -> Status {
    return tensor->delayed.wait(to_timeout(timeout_ms, *tensor->session));
  });
}

gradbus_code gradbus_drain(gradbus_tensor* tensor, int64_t timeout_ms, int32_t* found) {
  return guarded(tensor, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"found", found}}));
    const Result<bool> drained = tensor->delayed.drain(to_timeout(timeout_ms, *tensor->session));
    if (drained.ok()) *found = drained.value() ? 1 : 0;
    return drained.status();
  });
}

gradbus_code gradbus_start_read_residual_state(gradbus_tensor* tensor,
                                               gradbus_residual_state part) {
  return start_residual_state(tensor, SubmissionKind::kReadResidualState, part);
}

gradbus_code gradbus_start_write_residual_state(gradbus_tensor* tensor,
                                                gradbus_residual_state part) {
  return start_residual_state(tensor, SubmissionKind::kWriteResidualState, part);
}

gradbus_code gradbus_scale_residual_state(gradbus_tensor* tensor, double factor) {
  return guarded(tensor, [&]() -> Status { return tensor->delayed.scale_residual_state(factor); });
}

gradbus_code gradbus_continue_warm_up(gradbus_tensor* tensor, uint64_t rounds) {
  return guarded(tensor, [&]() -> Status {
    if (rounds > uint64_t{1} << 53)
      return error("O900", "a warm-up has not made " + std::to_string(rounds) + " rounds");
    tensor->delayed.continue_warm_up(rounds);
    return {};
  });
}

gradbus_code gradbus_set_learning_rate(gradbus_tensor* tensor, double rate) {
  return guarded(tensor, [&]() -> Status {
    if (!(std::isfinite(rate) && rate >= 0))
      return error("O900",
                   "tensor \"" + tensor->delayed.first().spec().name + "\": the learning rate is " +
                       std::to_string(rate),
                   "pass a finite number, at least 0");
    tensor->delayed.set_learning_rate(rate);
    return {};
  });
}

gradbus_code gradbus_start_pull(gradbus_tensor* tensor) {
  return guarded(tensor, [&]() -> Status { return tensor->delayed.start_pull(); });
}

uint32_t gradbus_optimizer_state_parts(const gradbus_tensor* tensor) {
  const Use use(tensor);
  return use ? tensor->delayed.first().optimizer_state_parts() : 0;
}

gradbus_code gradbus_start_read_optimizer_state(gradbus_tensor* tensor, uint32_t part) {
  return start_optimizer_state(tensor, PsRequest::kRead, part);
}

gradbus_code gradbus_start_write_optimizer_state(gradbus_tensor* tensor, uint32_t part) {
  return start_optimizer_state(tensor, PsRequest::kWrite, part);
}
