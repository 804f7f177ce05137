// The C interface over Session, Tensor and Operation. Nothing else of the library is visible; no
// exception crosses (out of memory becomes GRADBUS_EXHAUSTED).
#include <exception>
#include <memory>
#include <new>
#include <string>

#include "client_lib/src/operation.h"
#include "client_lib/src/session.h"
#include "common/errors.h"
#include "gradbus/gradbus.h"

struct gradbus_session {
  std::unique_ptr<gradbus::Session> session;
};
struct gradbus_handle {
  std::shared_ptr<gradbus::Operation> operation;
  gradbus::Session* session;
};

namespace gradbus {
namespace {

// Unnamed operations of one signature use this many tensors in turn, so as many can be in flight.
constexpr uint64_t kUnnamedWindow = 4;

thread_local std::string last_error;

gradbus_code report(const Status& status) {
  if (!status.ok()) last_error = status.message();
  return static_cast<gradbus_code>(status.code());
}

// Runs `body`, which returns a Status, and turns whatever happens into a code and a message.
template <typename Body>
gradbus_code guarded(Body body) {
  try {
    return report(body());
  } catch (const std::bad_alloc&) {
    return report(error("S201", "this process is out of memory"));
  } catch (const std::exception& problem) {
    return report(error("X001", problem.what()));
  }
}

Status missing(const char* argument) {
  return error("O900", std::string("argument ") + argument + " is NULL");
}

// A number that does not fit becomes 255, which is no dtype and no operation and is refused as
// such.
template <typename Narrow>
Narrow narrow(int64_t number) {
  return static_cast<Narrow>(number >= 0 && number < 255 ? number : 255);
}

Tensor& inner(gradbus_tensor* tensor) { return *reinterpret_cast<Tensor*>(tensor); }

Nanos to_timeout(int64_t timeout_ms, const Session& session) {
  return timeout_ms < 0 ? session.op_timeout() : timeout_ms * kMillisecond;
}

Result<SessionOptions> to_options(const gradbus_options& given) {
  SessionOptions options;
  if (given.socket_path != nullptr) options.socket_path = given.socket_path;
  if (given.job != nullptr) options.identity.job = given.job;
  options.identity.rank = given.rank;
  options.identity.world_size = given.world_size;
  auto start = seconds_variable(read_environment, "GRADBUS_START_TIMEOUT", 60'000);
  auto op = seconds_variable(read_environment, "GRADBUS_OP_TIMEOUT", 60'000);
  if (!start.ok()) return start.status();
  if (!op.ok()) return op.status();
  const auto chosen = [](int64_t given_ms, int64_t otherwise) {
    return (given_ms > 0 ? given_ms : otherwise) * kMillisecond;
  };
  options.start_timeout = chosen(given.start_timeout_ms, start.value());
  options.op_timeout = chosen(given.op_timeout_ms, op.value());
  return options;
}

std::string signature(const TensorSpec& spec) {
  return std::string(collective_name(spec.kind)) + "." + std::string(dtype_name(spec.dtype)) + "." +
         std::string(reduce_op_name(spec.op)) + "." + std::to_string(spec.count) + ".root" +
         std::to_string(spec.root);
}

std::string name_of(Session& session, const char* name, const TensorSpec& spec) {
  if (name != nullptr) return name;
  const std::string kind = signature(spec);
  return kind + "#" + std::to_string(session.next_unnamed(kind) % kUnnamedWindow);
}

Status start_operation(gradbus_session* session, std::shared_ptr<Operation> operation,
                       gradbus_handle** handle) {
  GRADBUS_RETURN_IF_ERROR(operation->begin());
  *handle = new gradbus_handle{std::move(operation), session->session.get()};
  return {};
}

gradbus_code finish_now(gradbus_code started, gradbus_handle* handle) {
  if (started != GRADBUS_OK) return started;
  const gradbus_code code = gradbus_handle_wait(handle, -1);
  gradbus_handle_free(handle);
  return code;
}

Status check_buffer(const void* data, uint64_t count, const char* argument) {
  return data == nullptr && count > 0 ? missing(argument) : Status();
}

}  // namespace
}  // namespace gradbus

using namespace gradbus;

const char* gradbus_version(void) { return GRADBUS_VERSION; }
const char* gradbus_last_error(void) { return last_error.c_str(); }

void gradbus_options_init(gradbus_options* options) {
  *options = gradbus_options{sizeof(gradbus_options), nullptr, nullptr, -1, -1, 0, 0};
}

gradbus_code gradbus_init(const gradbus_options* options, gradbus_session** session) {
  return guarded([&]() -> Status {
    if (session == nullptr) return missing("session");
    *session = nullptr;
    gradbus_options given;
    gradbus_options_init(&given);
    if (options != nullptr) {
      if (options->struct_bytes != sizeof(gradbus_options))
        return error(
            "V801",
            "gradbus_options has " + std::to_string(options->struct_bytes) +
                " bytes, this library expects " + std::to_string(sizeof(gradbus_options)),
            "call gradbus_options_init() first, and compile with this library's gradbus.h");
      given = *options;
    }
    const Result<SessionOptions> chosen = to_options(given);
    if (!chosen.ok()) return chosen.status();
    auto opened = Session::open(chosen.value());
    if (!opened.ok()) return opened.status();
    *session = new gradbus_session{opened.take()};
    return {};
  });
}

gradbus_code gradbus_shutdown(gradbus_session* session) {
  delete session;
  return GRADBUS_OK;
}

static int32_t as_int(uint32_t value) { return static_cast<int32_t>(value); }
int32_t gradbus_rank(const gradbus_session* session) { return as_int(session->session->rank()); }
int32_t gradbus_size(const gradbus_session* session) {
  return as_int(session->session->world_size());
}
int32_t gradbus_local_rank(const gradbus_session* session) {
  return as_int(session->session->local_rank());
}
int32_t gradbus_local_size(const gradbus_session* session) {
  return as_int(session->session->local_size());
}
int32_t gradbus_cross_rank(const gradbus_session* session) {
  return as_int(session->session->agent_index());
}
int32_t gradbus_cross_size(const gradbus_session* session) {
  return as_int(session->session->agents());
}
const char* gradbus_job(const gradbus_session* session) {
  return session->session->identity().job.c_str();
}
const char* gradbus_launcher(const gradbus_session* session) {
  return session->session->identity().launcher.c_str();
}

gradbus_code gradbus_register(gradbus_session* session, const gradbus_tensor_spec* specs, size_t n,
                              gradbus_tensor** tensors) {
  return guarded([&]() -> Status {
    if (session == nullptr) return missing("session");
    if (n > 0 && (specs == nullptr || tensors == nullptr)) return missing("specs or tensors");
    Session& inside = *session->session;
    std::vector<std::shared_ptr<Registration>> asked;
    for (size_t i = 0; i < n; ++i) {
      if (specs[i].name == nullptr) return missing("specs[].name");
      auto registration =
          inside.request({specs[i].name, specs[i].count, narrow<DType>(specs[i].dtype),
                          narrow<ReduceOp>(specs[i].op), CollectiveKind::kAllReduce, 0});
      if (!registration.ok()) return registration.status();
      asked.push_back(registration.take());
    }
    const Nanos deadline = monotonic_now() + inside.op_timeout();
    for (size_t i = 0; i < n; ++i) {
      WaitClock clock;
      GRADBUS_RETURN_IF_ERROR(inside.wait_registered(*asked[i], deadline - monotonic_now(), clock));
      tensors[i] = reinterpret_cast<gradbus_tensor*>(asked[i]->tensor);
    }
    return {};
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

gradbus_code gradbus_allreduce_async(gradbus_session* session, const char* name, const void* in,
                                     void* out, uint64_t count, gradbus_dtype dtype, gradbus_op op,
                                     gradbus_handle** handle) {
  return guarded([&]() -> Status {
    if (session == nullptr || handle == nullptr) return missing("session or handle");
    GRADBUS_RETURN_IF_ERROR(check_buffer(in, count, "in"));
    GRADBUS_RETURN_IF_ERROR(check_buffer(out, count, "out"));
    TensorSpec spec{
        "", count, narrow<DType>(dtype), narrow<ReduceOp>(op), CollectiveKind::kAllReduce, 0};
    spec.name = name_of(*session->session, name, spec);
    return start_operation(session, make_all_reduce(*session->session, spec, in, out), handle);
  });
}

gradbus_code gradbus_broadcast_async(gradbus_session* session, const char* name, void* data,
                                     uint64_t count, gradbus_dtype dtype, int32_t root,
                                     gradbus_handle** handle) {
  return guarded([&]() -> Status {
    if (session == nullptr || handle == nullptr) return missing("session or handle");
    GRADBUS_RETURN_IF_ERROR(check_buffer(data, count, "data"));
    TensorSpec spec{"",
                    count,
                    narrow<DType>(dtype),
                    ReduceOp::kNone,
                    CollectiveKind::kBroadcast,
                    static_cast<uint32_t>(root)};
    spec.name = name_of(*session->session, name, spec);
    return start_operation(session, make_broadcast(*session->session, spec, data), handle);
  });
}

gradbus_code gradbus_allgather_async(gradbus_session* session, const char* name, const void* in,
                                     uint64_t count, gradbus_dtype dtype, gradbus_handle** handle) {
  return guarded([&]() -> Status {
    if (session == nullptr || handle == nullptr) return missing("session or handle");
    GRADBUS_RETURN_IF_ERROR(check_buffer(in, count, "in"));
    TensorSpec spec{"", 0, narrow<DType>(dtype), ReduceOp::kNone, CollectiveKind::kAllGather, 0};
    spec.name = name_of(*session->session, name, spec);
    return start_operation(session, make_all_gather(*session->session, spec, in, count), handle);
  });
}

gradbus_code gradbus_handle_test(gradbus_handle* handle) {
  return guarded([&] { return handle == nullptr ? missing("handle") : handle->operation->test(); });
}

gradbus_code gradbus_handle_wait(gradbus_handle* handle, int64_t timeout_ms) {
  return guarded([&]() -> Status {
    if (handle == nullptr) return missing("handle");
    return handle->operation->wait(to_timeout(timeout_ms, *handle->session));
  });
}

gradbus_code gradbus_handle_output(gradbus_handle* handle, const void** data, uint64_t* bytes,
                                   const uint64_t** counts) {
  if (handle == nullptr || data == nullptr || bytes == nullptr)
    return report(missing("handle, data or bytes"));
  *data = handle->operation->output().data();
  *bytes = handle->operation->output().size();
  if (counts != nullptr) *counts = handle->operation->counts().data();
  return GRADBUS_OK;
}

void gradbus_handle_free(gradbus_handle* handle) {
  if (handle != nullptr) handle->operation->abandon();
  delete handle;
}

gradbus_code gradbus_allreduce(gradbus_session* session, const char* name, const void* in,
                               void* out, uint64_t count, gradbus_dtype dtype, gradbus_op op) {
  gradbus_handle* handle = nullptr;
  const gradbus_code started =
      gradbus_allreduce_async(session, name, in, out, count, dtype, op, &handle);
  return finish_now(started, handle);
}

gradbus_code gradbus_broadcast(gradbus_session* session, const char* name, void* data,
                               uint64_t count, gradbus_dtype dtype, int32_t root) {
  gradbus_handle* handle = nullptr;
  const gradbus_code started =
      gradbus_broadcast_async(session, name, data, count, dtype, root, &handle);
  return finish_now(started, handle);
}

gradbus_code gradbus_barrier(gradbus_session* session) {
  return gradbus_allreduce(session, "gradbus.barrier", nullptr, nullptr, 0, GRADBUS_U8,
                           GRADBUS_SUM);
}
