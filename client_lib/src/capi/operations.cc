// gradbus.h: operations on private buffers, alone and in groups.
#include <algorithm>

#include "client_lib/src/capi/capi.h"

namespace gradbus::capi {
namespace {

constexpr uint32_t kDimsMax = 255;          // more than any framework has
constexpr size_t kOperationsMax = 1 << 20;  // in a group

Unnamed draw_number(Session& session, const TensorSpec& spec) {
  const std::string kind = signature_of(spec);
  return {kind, session.operations().unnamed().next(kind)};
}

// Blocks of these kinds may differ in their first dimension. "" when there is nothing to compare.
std::string shape_of(const gradbus_operation& given) {
  if (given.dims < 2) return "";
  const bool rows_differ = !has_common_count(narrow<CollectiveKind>(given.collective));
  std::string text = rows_differ ? "[*" : "[" + std::to_string(given.shape[0]);
  for (uint32_t i = 1; i < given.dims; ++i) {
    text.append(",").append(std::to_string(given.shape[i]));
    if (text.size() > kShapeBytesMax) return "";
  }
  return text.size() < kShapeBytesMax ? text + "]" : "";
}

// An element of the shape may be several numbers, as those of complex tensors are.
Status check_shape(const gradbus_operation& given, const std::string& name) {
  if (given.dims < 2) return {};
  const std::string who = "tensor \"" + name.substr(0, kTensorNameBytesMax) + "\": ";
  if (given.shape == nullptr)
    return error("O900", who + "argument shape is NULL, and dims is " + std::to_string(given.dims));
  if (given.dims > kDimsMax)
    return error("O900", who + "argument dims is " + std::to_string(given.dims) + "; at most " +
                             std::to_string(kDimsMax) + " are allowed");
  uint64_t elements = 1;
  bool fits = true;
  for (uint32_t i = 0; i < given.dims; ++i)
    fits = !__builtin_mul_overflow(elements, given.shape[i], &elements) && fits;
  const bool empty =
      std::find(given.shape, given.shape + given.dims, 0U) != given.shape + given.dims;
  if (empty || (fits && given.count % elements == 0)) return {};
  return error(
      "O900",
      who + "argument shape is not that of count=" + std::to_string(given.count) + " elements",
      "pass the sizes of its dimensions, or dims=0");
}

// Of the tensor as a matrix, whose rows are its first dimension; 0: a vector.
uint64_t columns_of(const gradbus_operation& given) {
  if (given.dims < 2 || given.shape[0] == 0) return 0;
  return given.count / static_cast<uint64_t>(given.shape[0]);
}

// ALLTOALL without counts: equal ones.
Status fill_send_counts(const Session& session, const gradbus_operation& given,
                        OperationRequest& request) {
  const uint32_t ranks = session.world_size();
  if (given.send_counts != nullptr) {
    request.send_counts.assign(given.send_counts, given.send_counts + ranks);
  } else if (given.count % ranks == 0) {
    request.send_counts.assign(ranks, given.count / ranks);
  } else {
    return error("O900",
                 "all_to_all of tensor \"" + request.spec.name + "\" on rank " +
                     std::to_string(session.rank()) + ": " + std::to_string(given.count) +
                     " elements are not the same number for each of " + std::to_string(ranks) +
                     " ranks",
                 "pass send_counts");
  }
  return {};
}

// Fields that the collective does not use are ignored.
Result<OperationRequest> to_request(const Session& session, const gradbus_operation& given) {
  const auto kind = narrow<CollectiveKind>(given.collective);
  if (!is_collective(static_cast<uint32_t>(kind)))
    return error("O900", "collective number " + std::to_string(given.collective) + " is unknown");
  OperationRequest request;
  request.spec = {given.name == nullptr ? "(unnamed)" : given.name, given.count,
                  narrow<DType>(given.dtype), ReduceOp::kNone, kind};
  GRADBUS_RETURN_IF_ERROR(check_shape(given, request.spec.name));
  request.spec.shape = shape_of(given);
  if (reduces(kind)) {
    request.spec.op = narrow<ReduceOp>(given.op);
    request.spec.prescale = given.prescale;
    request.spec.postscale = given.postscale;
  }
  if (has_root(kind)) request.spec.root = static_cast<uint32_t>(given.root);
  if (kind == CollectiveKind::kReduceScatter) request.spec.row_elements = given.row_elements;
  // The job's policy is about gradients; what else is summed ad hoc (weights, metrics) says so
  // itself.
  const char* const asked = given.compression == nullptr ? "none" : given.compression;
  request.spec.compression = session.options().compression_for(request.spec, asked);
  if (!request.spec.compression.empty()) request.spec.columns = columns_of(given);
  request.in = given.in;
  request.out = given.out;
  request.input_stays = given.input_stays != 0;
  if (kind == CollectiveKind::kAllToAll)
    GRADBUS_RETURN_IF_ERROR(fill_send_counts(session, given, request));
  GRADBUS_RETURN_IF_ERROR(check_request(session, request));
  return request;
}

using Operations = std::vector<std::shared_ptr<Operation>>;

// Names are drawn only when the whole group is in order, so that a rank whose call was refused has
// not counted on.
Result<Operations> make_all(Session& session, const gradbus_operation* first, size_t n) {
  gradbus_operation defaults;
  gradbus_operation_init(&defaults, GRADBUS_ALLREDUCE);
  StructArray<gradbus_operation> known;
  GRADBUS_RETURN_IF_ERROR(known.read("gradbus_operation", first, n, defaults));
  const std::span<const gradbus_operation> given = known.all();
  std::vector<OperationRequest> requests;
  requests.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    Result<OperationRequest> request = to_request(session, given[i]);
    if (!request.ok()) return request.status();
    requests.push_back(request.take());
  }
  Operations operations;
  operations.reserve(n);
  for (size_t i = 0; i < n; ++i) {
    std::optional<Unnamed> drawn;
    if (given[i].name == nullptr) {
      drawn = draw_number(session, requests[i].spec);
      requests[i].spec.name = unnamed_tensor(drawn->signature, drawn->number);
    }
    operations.push_back(make_operation(session, requests[i]));
    operations.back()->set_unnamed_number(std::move(drawn));
  }
  return operations;
}

// A start fails when the session has failed or the agent is gone: what was started ends the same
// way, without the caller's buffers.
Status begin_all(const Operations& operations) {
  for (const auto& operation : operations) {
    const Status begun = operation->begin();
    if (begun.ok()) continue;
    for (const auto& started : operations) started->abandon();
    return begun;
  }
  return {};
}

Result<std::shared_ptr<gradbus_handle>> start(gradbus_session& session,
                                              const gradbus_operation* given, size_t n) {
  Result<Operations> operations = make_all(*session.session, given, n);
  if (!operations.ok()) return operations.status();
  std::shared_ptr<gradbus_handle> made(
      new gradbus_handle{operations.take(), &session, session.session.get()});
  GRADBUS_RETURN_IF_ERROR(begin_all(made->operations));
  return made;
}

// Of a group the first error, in order. The others go on without the caller's buffers, unless it
// may wait again.
Status wait_all(gradbus_handle& handle, Nanos timeout) {
  const Nanos deadline = monotonic_now() + timeout;
  for (const auto& operation : handle.operations) {
    const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
    const Status status = operation->wait(left);
    if (status.ok()) continue;
    if (status.code() != Code::kTimeout)
      for (const auto& other : handle.operations) other->abandon();
    return status;
  }
  return {};
}

Status test_all(gradbus_handle& handle) {
  for (const auto& operation : handle.operations) GRADBUS_RETURN_IF_ERROR(operation->test());
  return {};
}

void abandon_all(const gradbus_handle& handle) {
  for (const auto& operation : handle.operations) operation->abandon();
}

// The handle of an operation that has ended well.
Result<std::shared_ptr<gradbus_handle>> run(gradbus_session& session,
                                            const gradbus_operation& given) {
  auto started = start(session, &given, 1);
  if (!started.ok()) return started;
  const Status waited = wait_all(*started.value(), session.session->options().op_timeout);
  if (waited.ok()) return started;
  abandon_all(*started.value());
  return waited;
}

// Calls `body` with the handle, which stays until the call ends.
template <typename Body>
gradbus_code guarded_handle(const gradbus_handle* given, Body body) {
  return guarded([&]() -> Status {
    if (given == nullptr) return missing("handle");
    const std::shared_ptr<gradbus_handle> handle = Handles::of_this_process().find(given);
    if (handle == nullptr)
      return error("O900", "argument handle is no handle of this process",
                   "use a handle before you free it, and before you shut its session down");
    const Use use(handle);
    return use ? body(*handle) : use.why_not();
  });
}

gradbus_operation operation_of(gradbus_collective collective, const char* name, uint64_t count,
                               gradbus_dtype dtype) {
  gradbus_operation operation;
  gradbus_operation_init(&operation, collective);
  operation.name = name;
  operation.count = count;
  operation.dtype = dtype;
  return operation;
}

gradbus_operation all_reduce_of(const char* name, const void* in, void* out, uint64_t count,
                                gradbus_dtype dtype, gradbus_op op) {
  gradbus_operation operation = operation_of(GRADBUS_ALLREDUCE, name, count, dtype);
  operation.in = in;
  operation.out = out;
  operation.op = op;
  return operation;
}

gradbus_operation broadcast_of(const char* name, void* data, uint64_t count, gradbus_dtype dtype,
                               int32_t root) {
  gradbus_operation operation = operation_of(GRADBUS_BROADCAST, name, count, dtype);
  operation.out = data;
  operation.root = root;
  return operation;
}

}  // namespace
}  // namespace gradbus::capi

using namespace gradbus;
using namespace gradbus::capi;

gradbus_code gradbus_start_operations(gradbus_session* session, const gradbus_operation* operations,
                                      size_t n, gradbus_handle** handle) {
  if (handle != nullptr) *handle = nullptr;
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"handle", handle}}));
    if (n > 0) GRADBUS_RETURN_IF_ERROR(check_given({{"operations", operations}}));
    GRADBUS_RETURN_IF_ERROR(check_number(n, kOperationsMax));
    auto started = start(*session, operations, n);
    if (started.ok()) *handle = Handles::of_this_process().add(started.take());
    return started.status();
  });
}

gradbus_code gradbus_run_operation(gradbus_session* session, const gradbus_operation* operation,
                                   gradbus_handle** handle) {
  if (handle != nullptr) *handle = nullptr;
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"operation", operation}}));
    gradbus_operation blocking;
    gradbus_operation_init(&blocking, GRADBUS_ALLREDUCE);
    GRADBUS_RETURN_IF_ERROR(read_struct("gradbus_operation", operation, blocking));
    blocking.input_stays = 1;
    auto ended = run(*session, blocking);
    if (ended.ok() && handle != nullptr) *handle = Handles::of_this_process().add(ended.take());
    return ended.status();
  });
}

gradbus_code gradbus_handle_test(gradbus_handle* handle) {
  return guarded_handle(handle, [](gradbus_handle& known) { return test_all(known); });
}

gradbus_code gradbus_handle_wait(gradbus_handle* handle, int64_t timeout_ms) {
  return guarded_handle(handle, [&](gradbus_handle& known) {
    return wait_all(known, to_timeout(timeout_ms, *known.session));
  });
}

gradbus_code gradbus_handle_output(gradbus_handle* handle, const void** data, uint64_t* bytes,
                                   const uint64_t** counts) {
  return gradbus_handle_output_at(handle, 0, data, bytes, counts);
}

gradbus_code gradbus_handle_output_at(gradbus_handle* handle, size_t index, const void** data,
                                      uint64_t* bytes, const uint64_t** counts) {
  return guarded_handle(handle, [&](gradbus_handle& known) -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"data", data}, {"bytes", bytes}}));
    if (index >= known.operations.size())
      return error("O900", "index " + std::to_string(index) + " in a group of operations: it has " +
                               std::to_string(known.operations.size()));
    Operation& operation = *known.operations[index];
    if (operation.unfinished())
      return error("O905", "the operation has not ended, so it has no output yet",
                   "wait for its handle first");
    *data = operation.output().data();
    *bytes = operation.output().size();
    if (counts != nullptr)
      *counts = operation.counts().empty() ? nullptr : operation.counts().data();
    return {};
  });
}

void gradbus_handle_free(gradbus_handle* handle) {
  if (handle == nullptr) return;
  guarded_handle(handle, [&](gradbus_handle& known) -> Status {  // a child leaves it to the parent
    abandon_all(known);
    (void)Handles::of_this_process().take(handle);
    return {};
  });
}

gradbus_code gradbus_shard(const gradbus_session* session, int32_t rank, uint64_t count,
                           uint64_t row_elements, uint64_t* first, uint64_t* elements) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"first", first}, {"elements", elements}}));
    const auto ranks = static_cast<uint32_t>(session->place.size);
    if (rank < 0 || static_cast<uint32_t>(rank) >= ranks)
      return error("O900", "rank " + std::to_string(rank) + " is not a rank of 0.." +
                               std::to_string(ranks - 1));
    if (row_elements == 0 || count % row_elements != 0)
      return error("O900", std::to_string(count) + " elements are not whole rows of " +
                               std::to_string(row_elements));
    const ChunkPlan plan{count, row_elements, ranks, 1};
    *first = plan.shard_first(static_cast<uint32_t>(rank));
    *elements = plan.shard_elements(static_cast<uint32_t>(rank));
    return {};
  });
}

// ---- the forms with plain arguments

gradbus_code gradbus_allreduce_async(gradbus_session* session, const char* name, const void* in,
                                     void* out, uint64_t count, gradbus_dtype dtype, gradbus_op op,
                                     gradbus_handle** handle) {
  const gradbus_operation operation = all_reduce_of(name, in, out, count, dtype, op);
  return gradbus_start_operations(session, &operation, 1, handle);
}

gradbus_code gradbus_broadcast_async(gradbus_session* session, const char* name, void* data,
                                     uint64_t count, gradbus_dtype dtype, int32_t root,
                                     gradbus_handle** handle) {
  const gradbus_operation operation = broadcast_of(name, data, count, dtype, root);
  return gradbus_start_operations(session, &operation, 1, handle);
}

gradbus_code gradbus_allgather_async(gradbus_session* session, const char* name, const void* in,
                                     uint64_t count, gradbus_dtype dtype, gradbus_handle** handle) {
  gradbus_operation operation = operation_of(GRADBUS_ALLGATHER, name, count, dtype);
  operation.in = in;
  return gradbus_start_operations(session, &operation, 1, handle);
}

gradbus_code gradbus_allreduce(gradbus_session* session, const char* name, const void* in,
                               void* out, uint64_t count, gradbus_dtype dtype, gradbus_op op) {
  const gradbus_operation operation = all_reduce_of(name, in, out, count, dtype, op);
  return gradbus_run_operation(session, &operation, nullptr);
}

gradbus_code gradbus_broadcast(gradbus_session* session, const char* name, void* data,
                               uint64_t count, gradbus_dtype dtype, int32_t root) {
  const gradbus_operation operation = broadcast_of(name, data, count, dtype, root);
  return gradbus_run_operation(session, &operation, nullptr);
}

gradbus_code gradbus_barrier(gradbus_session* session) {
  return gradbus_allreduce(session, "gradbus.barrier", nullptr, nullptr, 0, GRADBUS_U8,
                           GRADBUS_SUM);
}
