// See session.h: attaching, leaving and starting operations.
#include "session.h"

#include <cmath>
#include <cstdlib>
#include <functional>
#include <utility>

#include "errors.h"
#include "guard.h"
#include "wait.h"

namespace nb = nanobind;

namespace gradbus::python {
namespace {

constexpr int64_t kClosePatienceMs = 1000;
constexpr int64_t kOpTimeoutMs = 60'000;  // as in gradbus.h

gradbus_options options_of(const InitArguments& arguments) {
  gradbus_options options;
  gradbus_options_init(&options);
  if (arguments.job) options.job = arguments.job->c_str();
  if (arguments.socket_path) options.socket_path = arguments.socket_path->c_str();
  if (arguments.rank) options.rank = *arguments.rank;
  if (arguments.world_size) options.world_size = *arguments.world_size;
  if (arguments.start_timeout_ms) options.start_timeout_ms = *arguments.start_timeout_ms;
  if (arguments.op_timeout_ms) options.op_timeout_ms = *arguments.op_timeout_ms;
  return options;
}

// The C interface does not tell the deadline it took from the environment, and slices need it.
int64_t effective_op_timeout_ms(const gradbus_options& options) {
  if (options.op_timeout_ms > 0) return options.op_timeout_ms;
  const char* seconds = std::getenv("GRADBUS_OP_TIMEOUT");  // gradbus_init found it valid
  return seconds == nullptr ? kOpTimeoutMs : std::llround(std::strtod(seconds, nullptr) * 1000);
}

Session::Place place_of(const gradbus_session* session) {
  return {gradbus_rank(session),       gradbus_size(session),       gradbus_local_rank(session),
          gradbus_local_size(session), gradbus_cross_rank(session), gradbus_cross_size(session),
          gradbus_job(session),        gradbus_launcher(session)};
}

// If the caller is interrupted, the slot dies on the init thread and takes the session with it.
std::shared_ptr<Attachment> attach(const InitArguments& arguments) {
  auto slot = std::make_shared<std::shared_ptr<Attachment>>();
  throw_unless_ok(call_interruptibly([arguments, slot] {
    const gradbus_options options = options_of(arguments);
    gradbus_session* session = nullptr;
    Outcome outcome = outcome_of(gradbus_init(&options, &session));
    if (outcome.code == GRADBUS_OK) {
      *slot = std::make_shared<Attachment>(session, effective_op_timeout_ms(options));
    }
    return outcome;
  }));
  return *slot;
}

const char* c_name(const std::optional<std::string>& name) {
  return name ? name->c_str() : nullptr;
}

using StartCall = std::function<gradbus_code(gradbus_session*, gradbus_handle**)>;

// The first use of a name is a control message, so others may run meanwhile.
gradbus_handle* start_operation(const std::shared_ptr<Attachment>& attachment,
                                const StartCall& start) {
  const OpenSession open(attachment);
  gradbus_handle* handle = nullptr;
  Outcome outcome;
  {
    nb::gil_scoped_release release;
    outcome = outcome_of(start(attachment->session(), &handle));
  }
  throw_unless_ok(outcome);
  return handle;
}

// What the register thread works on; it may outlive the interrupted caller.
struct Registration {
  std::vector<BucketSpec> specs;
  std::vector<gradbus_tensor*> tensors;
};

Outcome register_all(gradbus_session* session, Registration& registration) {
  std::vector<gradbus_tensor_spec> specs;
  for (const BucketSpec& spec : registration.specs) {
    specs.push_back({spec.name.c_str(), spec.count, spec.dtype, spec.op});
  }
  registration.tensors.resize(specs.size());
  return outcome_of(
      gradbus_register(session, specs.data(), specs.size(), registration.tensors.data()));
}

Outcome closed_outcome() {
  return {GRADBUS_CLOSED,
          "GB-O900 BAD_ARGUMENT: the session was shut down meanwhile | next: init again"};
}

}  // namespace

Session::Session(const InitArguments& arguments) : attachment_(attach(arguments)) {
  place_ = place_of(attachment_->session());
}

void Session::close() {
  nb::gil_scoped_release release;
  attachment_->close(kClosePatienceMs);
}

std::vector<std::unique_ptr<Bucket>> Session::register_buckets(
    const std::vector<BucketSpec>& specs) {
  { const OpenSession open(attachment_); }
  const auto registration = std::make_shared<Registration>(Registration{specs, {}});
  throw_unless_ok(call_interruptibly([attachment = attachment_, registration] {
    const Attachment::Use use(attachment);
    return use ? register_all(attachment->session(), *registration) : closed_outcome();
  }));
  std::vector<std::unique_ptr<Bucket>> buckets;
  for (size_t i = 0; i < specs.size(); ++i) {
    buckets.push_back(std::make_unique<Bucket>(attachment_, registration->tensors[i], specs[i]));
  }
  return buckets;
}

std::unique_ptr<Operation> Session::allreduce(std::optional<std::string> name, nb::handle in,
                                              nb::handle out, gradbus_op op) {
  const std::string what = describe("allreduce", name);
  Array input = array_of(in, Access::kRead, what);
  Array output = array_of(out, Access::kWrite, what + ", its output");
  if (input.count != output.count || input.dtype != output.dtype) {
    throw_invalid(what + ": input and output differ in size or dtype", "pass equal ones");
  }
  gradbus_handle* handle =
      start_operation(attachment_, [&](gradbus_session* session, gradbus_handle** started) {
        return gradbus_allreduce_async(session, c_name(name), input.data, output.data, input.count,
                                       input.dtype, op, started);
      });
  return std::make_unique<Operation>(attachment_, handle, std::move(input), std::move(output));
}

std::unique_ptr<Operation> Session::broadcast(std::optional<std::string> name, nb::handle data,
                                              int32_t root) {
  Array array = array_of(data, Access::kWrite, describe("broadcast", name));
  gradbus_handle* handle =
      start_operation(attachment_, [&](gradbus_session* session, gradbus_handle** started) {
        return gradbus_broadcast_async(session, c_name(name), array.data, array.count, array.dtype,
                                       root, started);
      });
  return std::make_unique<Operation>(attachment_, handle, std::move(array), Array{});
}

std::unique_ptr<Operation> Session::allgather(std::optional<std::string> name, nb::handle in) {
  Array input = array_of(in, Access::kRead, describe("allgather", name));
  gradbus_handle* handle =
      start_operation(attachment_, [&](gradbus_session* session, gradbus_handle** started) {
        return gradbus_allgather_async(session, c_name(name), input.data, input.count, input.dtype,
                                       started);
      });
  return std::make_unique<Operation>(attachment_, handle, std::move(input), Array{});
}

void Session::barrier() {
  { const OpenSession open(attachment_); }
  throw_unless_ok(call_interruptibly([attachment = attachment_] {
    const Attachment::Use use(attachment);
    return use ? outcome_of(gradbus_barrier(attachment->session())) : closed_outcome();
  }));
}

}  // namespace gradbus::python
