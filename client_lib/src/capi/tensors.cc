// gradbus.h: registered tensors.
#include "client_lib/src/capi/capi.h"

namespace gradbus::capi {
namespace {

Tensor& inner(gradbus_tensor* tensor) { return *reinterpret_cast<Tensor*>(tensor); }

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

Status register_all(Session& session, const gradbus_tensor_spec* specs, size_t n,
                    gradbus_tensor** tensors) {
  std::vector<std::shared_ptr<Registration>> asked;
  for (size_t i = 0; i < n; ++i) {
    const Result<TensorSpec> spec = to_spec(session, specs[i]);
    if (!spec.ok()) return spec.status();
    auto registration = session.request(spec.value());
    if (!registration.ok()) return registration.status();
    asked.push_back(registration.take());
  }
  const Nanos deadline = monotonic_now() + session.op_timeout();
  for (size_t i = 0; i < n; ++i) {
    WaitClock clock;
    GRADBUS_RETURN_IF_ERROR(session.wait_registered(*asked[i], deadline - monotonic_now(), clock));
    tensors[i] = reinterpret_cast<gradbus_tensor*>(asked[i]->tensor);
  }
  return {};
}

}  // namespace
}  // namespace gradbus::capi

using namespace gradbus;
using namespace gradbus::capi;

gradbus_code gradbus_register(gradbus_session* session, const gradbus_tensor_spec* specs, size_t n,
                              gradbus_tensor** tensors) {
  return guarded([&]() -> Status {
    if (session == nullptr) return missing("session");
    if (n > 0 && (specs == nullptr || tensors == nullptr)) return missing("specs or tensors");
    return register_all(*session->session, specs, n, tensors);
  });
}

void* gradbus_tensor_data(gradbus_tensor* tensor) {
  return tensor == nullptr ? nullptr : inner(tensor).data();
}

gradbus_code gradbus_start(gradbus_tensor* tensor) {
  return guarded([&] { return tensor == nullptr ? missing("tensor") : inner(tensor).start(); });
}

gradbus_code gradbus_test(gradbus_tensor* tensor) {
  return guarded([&]() -> Status {
    if (tensor == nullptr) return missing("tensor");
    if (!inner(tensor).in_flight()) return {};
    inner(tensor).session().progress();
    if (inner(tensor).attempt()) return inner(tensor).take_result();
    GRADBUS_RETURN_IF_ERROR(inner(tensor).session().failure());
    return Status(Code::kBusy, "\"" + inner(tensor).spec().name + "\" is not finished");
  });
}

gradbus_code gradbus_wait(gradbus_tensor* tensor, int64_t timeout_ms) {
  return guarded([&]() -> Status {
    if (tensor == nullptr) return missing("tensor");
    if (!inner(tensor).in_flight()) return {};
    return inner(tensor).wait(to_timeout(timeout_ms, inner(tensor).session()));
  });
}
