// gradbus.h: registered tensors.
#include <cmath>
#include <cstring>

#include "client_lib/src/capi/capi.h"
#include "common/exchange_mode.h"

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
  spec.before = or_one(given.prescale);
  spec.after = or_one(given.postscale);
  if (spec.kind == CollectiveKind::kReduceScatter) spec.row_elements = or_one(given.row_elements);
  spec.columns = given.columns;
  spec.compression = session.compression_for(spec, given.compression);
  if (spec.compression.empty()) spec.columns = 0;
  return spec;
}

// A tensor as it was asked for: one registration for each of its lanes.
struct Asked {
  std::vector<std::shared_ptr<Registration>> lanes;
};

Status check_mode(const TensorSpec& spec, const ExchangeMode& mode) {
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
  if (mode.kind == ExchangeMode::Kind::kSync || spec.kind == CollectiveKind::kAllReduce) return {};
  return error("O911",
               "tensor \"" + spec.name + "\": mode " + mode.canonical + " is for all-reduces");
}

Result<Asked> ask(Session& session, const gradbus_tensor_spec& given) {
  Result<TensorSpec> spec = to_spec(session, given);
  if (!spec.ok()) return spec.status();
  const Result<ExchangeMode> mode = parse_mode(given.mode == nullptr ? "" : given.mode);
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
  for (uint32_t lane = 0; lane <= mode.value().delay; ++lane) {
    TensorSpec one = spec.value();
    if (mode.value().kind != ExchangeMode::Kind::kSync) one.mode = mode.value().canonical;
    if (lane > 0) one.name += "@" + std::to_string(lane);
    auto registration = session.request(one, device);
    if (!registration.ok()) return registration.status();
    asked.lanes.push_back(registration.take());
  }
  return asked;
}

gradbus_tensor* tensor_of(gradbus_session& session, const Asked& asked) {
  std::vector<Tensor*> lanes;
  for (const auto& registration : asked.lanes) lanes.push_back(registration->tensor);
  const std::lock_guard lock(session.tensors_lock);
  auto& known = session.tensors[{lanes.front(), lanes.size()}];
  if (known == nullptr) {
    auto views = std::make_shared<TensorViews>(*session.session, lanes);
    std::string name = lanes.front()->spec().name;
    known.reset(new gradbus_tensor{&session, session.session.get(), /*unregistered=*/false,
                                   Lanes(std::move(lanes)), std::move(name), std::move(views)});
  }
  return known.get();
}

Status register_all(gradbus_session& session, const gradbus_tensor_spec* specs, size_t n,
                    gradbus_tensor** tensors) {
  StructArray<gradbus_tensor_spec> known;
  GRADBUS_RETURN_IF_ERROR(known.read("gradbus_tensor_spec", specs, n, {}));
  std::vector<Asked> all;
  for (const gradbus_tensor_spec& spec : known.all()) {
    Result<Asked> asked = ask(*session.session, spec);
    if (!asked.ok()) return asked.status();
    all.push_back(asked.take());
  }
  const Nanos deadline = monotonic_now() + session.session->op_timeout();
  for (size_t i = 0; i < n; ++i) {
    for (const auto& lane : all[i].lanes) {
      WaitClock clock;
      GRADBUS_RETURN_IF_ERROR(
          session.session->wait_registered(*lane, deadline - monotonic_now(), clock));
    }
    tensors[i] = tensor_of(session, all[i]);
  }
  return {};
}

// The handle stays: calls with it say that it was unregistered. Its lanes must not be used.
Status unregister(gradbus_tensor& tensor) {
  gradbus_session& session = *tensor.owner;
  const std::lock_guard lock(session.tensors_lock);
  GRADBUS_RETURN_IF_ERROR(usable(&tensor));
  if (tensor.lanes.busy() && session.session->failure().ok())
    return error("O905", "tensor \"" + tensor.name + "\" cannot be unregistered: it is in use",
                 "wait for its last step, and drain it if its mode is delayed");
  const std::span<Tensor* const> lanes = tensor.lanes.all();
  const auto known = session.tensors.find({lanes.front(), lanes.size()});
  GRADBUS_RETURN_IF_ERROR(tensor.views->unregister());
  tensor.unregistered = true;
  session.unregistered.push_back(std::move(known->second));
  session.tensors.erase(known);
  return {};
}

Status start_kept(gradbus_tensor* tensor, PullKind kind, uint32_t part) {
  GRADBUS_RETURN_IF_ERROR(usable(tensor));
  return tensor->lanes.start_kept(kind, part);
}

Status start_memory(gradbus_tensor* tensor, SubmissionKind kind, gradbus_memory part) {
  GRADBUS_RETURN_IF_ERROR(usable(tensor));
  if (part != GRADBUS_RESIDUAL && part != GRADBUS_MOMENTUM)
    return error("O900", "memory number " + std::to_string(part),
                 "use GRADBUS_RESIDUAL or GRADBUS_MOMENTUM");
  return tensor->lanes.start_memory(
      kind, part == GRADBUS_RESIDUAL ? MemoryPart::kResidual : MemoryPart::kMomentum);
}

}  // namespace

Status unusable(const gradbus_tensor* tensor) {
  if (tensor == nullptr) return missing("tensor");
  if (!tensor->session->is_of_this_process()) return forked_error();
  return error("O900", "tensor \"" + tensor->name + "\" was unregistered",
               "register it again, or unregister it after its last use");
}

}  // namespace gradbus::capi

using namespace gradbus;
using namespace gradbus::capi;

gradbus_code gradbus_register(gradbus_session* session, const gradbus_tensor_spec* specs, size_t n,
                              gradbus_tensor** tensors) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(session));
    if (n > 0 && (specs == nullptr || tensors == nullptr)) return missing("specs or tensors");
    return register_all(*session, specs, n, tensors);
  });
}

gradbus_code gradbus_unregister(gradbus_tensor* tensor) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(tensor));
    return unregister(*tensor);
  });
}

gradbus_code gradbus_unregister_name(gradbus_session* session, const char* name) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(session));
    if (name == nullptr) return missing("name");
    const Result<size_t> found = session->session->unregister(std::string(name));
    if (!found.ok() || found.value() > 0) return found.status();
    return error(
        "O900", std::string("no operation has used the name \"") + name + "\"",
        "pass the name of an ad-hoc operation; a registered tensor is unregistered itself");
  });
}

void* gradbus_tensor_data(gradbus_tensor* tensor) {
  return !usable(tensor).ok() ? nullptr : tensor->lanes.data(tensor->lanes.current());
}

uint32_t gradbus_tensor_delay(const gradbus_tensor* tensor) {
  return !usable(tensor).ok() ? 0 : tensor->lanes.delay();
}

uint32_t gradbus_tensor_lane(const gradbus_tensor* tensor) {
  return !usable(tensor).ok() ? 0 : tensor->lanes.current();
}

void* gradbus_lane_data(gradbus_tensor* tensor, uint32_t lane) {
  return !usable(tensor).ok() || lane > tensor->lanes.delay() ? nullptr : tensor->lanes.data(lane);
}

int64_t gradbus_staleness(const gradbus_tensor* tensor) {
  return !usable(tensor).ok() ? -1 : tensor->lanes.staleness();
}

gradbus_code gradbus_start(gradbus_tensor* tensor) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(tensor));
    return tensor->lanes.start();
  });
}

gradbus_code gradbus_test(gradbus_tensor* tensor) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(tensor));
    if (!tensor->lanes.in_flight()) return {};
    tensor->session->progress();
    if (tensor->lanes.attempt()) return tensor->lanes.wait(0);
    GRADBUS_RETURN_IF_ERROR(tensor->session->failure());
    return Status(Code::kBusy, "\"" + tensor->lanes.first().spec().name + "\" is not finished");
  });
}

gradbus_code gradbus_wait(gradbus_tensor* tensor, int64_t timeout_ms) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(tensor));
    return tensor->lanes.wait(to_timeout(timeout_ms, *tensor->session));
  });
}

gradbus_code gradbus_drain(gradbus_tensor* tensor, int64_t timeout_ms, int32_t* found) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(tensor));
    if (found == nullptr) return missing("found");
    const Result<bool> drained = tensor->lanes.drain(to_timeout(timeout_ms, *tensor->session));
    if (drained.ok()) *found = drained.value() ? 1 : 0;
    return drained.status();
  });
}

gradbus_code gradbus_start_read_memory(gradbus_tensor* tensor, gradbus_memory part) {
  return guarded([&] { return start_memory(tensor, SubmissionKind::kReadMemory, part); });
}

gradbus_code gradbus_start_write_memory(gradbus_tensor* tensor, gradbus_memory part) {
  return guarded([&] { return start_memory(tensor, SubmissionKind::kWriteMemory, part); });
}

gradbus_code gradbus_scale_memory(gradbus_tensor* tensor, double factor) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(tensor));
    return tensor->lanes.scale_memory(factor);
  });
}

gradbus_code gradbus_set_learning_rate(gradbus_tensor* tensor, double rate) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(tensor));
    if (!(std::isfinite(rate) && rate >= 0))
      return error("O900",
                   "tensor \"" + tensor->lanes.first().spec().name + "\": the learning rate is " +
                       std::to_string(rate),
                   "pass a finite number, at least 0");
    tensor->lanes.set_learning_rate(rate);
    return {};
  });
}

gradbus_code gradbus_start_pull(gradbus_tensor* tensor) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(usable(tensor));
    return tensor->lanes.start_pull();
  });
}

uint32_t gradbus_kept_parts(const gradbus_tensor* tensor) {
  return !usable(tensor).ok() ? 0 : tensor->lanes.first().kept_parts();
}

gradbus_code gradbus_start_read_kept(gradbus_tensor* tensor, uint32_t part) {
  return guarded([&] { return start_kept(tensor, PullKind::kRead, part); });
}

gradbus_code gradbus_start_write_kept(gradbus_tensor* tensor, uint32_t part) {
  return guarded([&] { return start_kept(tensor, PullKind::kWrite, part); });
}
