// See session.h: attaching, leaving and starting operations.
#include "session.h"

#include <array>
#include <cmath>
#include <cstdlib>
#include <deque>
#include <utility>

#include "errors.h"
#include "gil.h"
#include "guard.h"
#include "wait.h"

namespace nb = nanobind;

namespace gradbus::python {
namespace {

constexpr int64_t kClosePatienceMs = 1000;
constexpr int64_t kOpTimeoutMs = 1'800'000;  // as in gradbus.h

gradbus_options options_of(const InitArguments& arguments) {
  gradbus_options options;
  gradbus_options_init(&options);
  if (arguments.job) options.job = arguments.job->c_str();
  if (arguments.socket_path) options.socket_path = arguments.socket_path->c_str();
  if (arguments.rank) options.rank = *arguments.rank;
  if (arguments.world_size) options.world_size = *arguments.world_size;
  if (arguments.start_timeout_ms) options.start_timeout_ms = *arguments.start_timeout_ms;
  if (arguments.op_timeout_ms) options.op_timeout_ms = *arguments.op_timeout_ms;
  options.many_threads = arguments.many_threads ? 1 : 0;
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

const char* verb_of(gradbus_collective collective) {
  switch (collective) {
    case GRADBUS_BROADCAST: return "broadcast";
    case GRADBUS_ALLGATHER: return "allgather";
    case GRADBUS_REDUCE: return "reduce";
    case GRADBUS_REDUCESCATTER: return "reducescatter";
    case GRADBUS_GATHER: return "gather";
    case GRADBUS_SCATTER: return "scatter";
    case GRADBUS_ALLTOALL: return "alltoall";
    default: return "allreduce";
  }
}

// The operations of a group as the C interface takes them; `arrays` holds what they point to.
struct Group {
  std::vector<gradbus_operation> operations;
  std::deque<Array> arrays;

  void add(const gradbus_session* session, const Request& request, bool input_stays);

 private:
  // Null for None. Stays where it is.
  const Array* hold(nb::handle object, Access access, const std::string& what);
};

const Array* Group::hold(nb::handle object, Access access, const std::string& what) {
  if (object.is_none()) return nullptr;
  return &arrays.emplace_back(array_of(object, access, what));
}

// How many elements the output of an operation with an input has on this rank.
uint64_t output_count(const gradbus_session* session, const Request& request, uint64_t input) {
  if (request.collective == GRADBUS_SCATTER) return input / gradbus_size(session);
  if (request.collective != GRADBUS_REDUCESCATTER) return input;
  uint64_t first = 0;
  uint64_t elements = 0;
  throw_unless_ok(outcome_of(gradbus_shard(session, gradbus_rank(session), input,
                                           request.row_elements, &first, &elements)));
  return elements;
}

// "1 rank", "2 ranks". The package is built without common/.
std::string counted(uint64_t number, const std::string& noun) {
  return std::to_string(number) + " " + noun + (number == 1 ? "" : "s");
}

// The library trusts the counts that it is given, so what we give it is looked at.
void check_sizes(const gradbus_session* session, const Request& request, const Array* input,
                 const Array* output, const std::string& what) {
  if (input != nullptr && output != nullptr &&
      (input->dtype != output->dtype ||
       output->count != output_count(session, request, input->count)))
    throw_invalid(what + ": input and output do not fit in size or dtype", "pass fitting ones");
  if (request.send_counts &&
      request.send_counts->size() != static_cast<size_t>(gradbus_size(session)))
    throw_invalid(what + ": there are " + counted(request.send_counts->size(), "split") + " for " +
                      counted(gradbus_size(session), "rank"),
                  "pass one split per rank");
}

// The element count is the input's, or the output's where there is no input. Scatter counts what
// each rank gets.
void Group::add(const gradbus_session* session, const Request& request, bool input_stays) {
  const std::string what = describe(verb_of(request.collective), request.name);
  gradbus_operation operation;
  gradbus_operation_init(&operation, request.collective);
  operation.name = request.name ? request.name->c_str() : nullptr;
  const Array* output = hold(request.output, Access::kWrite, what + ", its output");
  const Array* input = hold(request.input, Access::kRead, what);
  check_sizes(session, request, input, output, what);
  if (output != nullptr) {
    operation.out = output->data;
    operation.count = output->count;
    operation.dtype = output->dtype;
  }
  if (input != nullptr) {
    operation.in = input->data;
    if (request.collective != GRADBUS_SCATTER) operation.count = input->count;
    operation.dtype = input->dtype;
  }
  if (request.dtype) operation.dtype = *request.dtype;
  operation.op = request.op;
  operation.root = request.root;
  operation.prescale = request.prescale;
  operation.postscale = request.postscale;
  operation.row_elements = request.row_elements;
  operation.send_counts = request.send_counts ? request.send_counts->data() : nullptr;
  operation.compression = request.compression ? request.compression->c_str() : nullptr;
  operation.input_stays = input_stays ? 1 : 0;
  operation.dims = static_cast<uint32_t>(request.shape.size());
  operation.shape = request.shape.data();
  operations.push_back(operation);
}

// The first use of a name is a control message, so others may run meanwhile.
gradbus_handle* start_operations(const std::shared_ptr<Attachment>& attachment,
                                 const std::vector<gradbus_operation>& operations) {
  const OpenSession open(attachment);
  gradbus_handle* handle = nullptr;
  Outcome outcome;
  {
    GilReleased release;
    outcome = outcome_of(gradbus_start_operations(attachment->session(), operations.data(),
                                                  operations.size(), &handle));
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
    gradbus_tensor_spec_init(&specs.emplace_back());
    specs.back().name = spec.name.c_str();
    specs.back().count = spec.count;
    specs.back().dtype = spec.dtype;
    specs.back().op = spec.op;
    specs.back().compression = spec.compression.c_str();
    specs.back().columns = spec.columns;
    specs.back().mode = spec.mode.c_str();
    specs.back().priority = spec.priority;
    specs.back().result_priority = spec.result_priority;
    specs.back().budget_bytes = spec.budget_bytes;
    if (spec.device.size() == 16)
      specs.back().device = reinterpret_cast<const unsigned char*>(spec.device.data());
  }
  registration.tensors.resize(specs.size());
  return outcome_of(
      gradbus_register(session, specs.data(), specs.size(), registration.tensors.data()));
}

}  // namespace

Session::Session(const InitArguments& arguments) : Session(attach(arguments)) {}

Session::Session(std::shared_ptr<Attachment> attachment)
    : attachment_(std::move(attachment)), place_(place_of(attachment_->session())) {}

void Session::close() {
  GilReleased release;
  attachment_->close(kClosePatienceMs);
}

std::vector<std::unique_ptr<Bucket>> Session::register_buckets(
    const std::vector<BucketSpec>& specs) {
  { const OpenSession open(attachment_); }
  const auto registration = std::make_shared<Registration>(Registration{specs, {}});
  throw_unless_ok(call_interruptibly([attachment = attachment_, registration] {
    return register_all(attachment->session(), *registration);
  }));
  std::vector<std::unique_ptr<Bucket>> buckets;
  for (size_t i = 0; i < specs.size(); ++i) {
    buckets.push_back(std::make_unique<Bucket>(attachment_, registration->tensors[i], specs[i]));
  }
  return buckets;
}

std::pair<std::vector<MemoryTuple>, nb::bytes> Session::try_device(const std::string& device) {
  const auto trial = std::make_shared<gradbus_device_trial>();
  gradbus_device_trial_init(trial.get());
  if (device.size() != 16) throw_invalid("a GPU has an UUID of 16 bytes", "name one");
  if (tried_.insert(device).second)
    throw_unless_ok(call_interruptibly([attachment = attachment_, device, trial] {
      const auto* const id = reinterpret_cast<const unsigned char*>(device.data());
      return outcome_of(gradbus_try_device(attachment->session(), id, trial.get()));
    }));
  std::vector<MemoryTuple> memory;
  for (uint64_t i = 0; i < trial->count; ++i) memory.push_back(to_tuple(trial->memory[i]));
  return {memory, nb::bytes(trial->event, sizeof(trial->event))};
}

void Session::device_tried(const std::string& device, const std::vector<std::string>& why_not) {
  const OpenSession open(attachment_);
  std::array<const char*, 3> reasons{};
  if (device.size() != 16 || why_not.size() > reasons.size())
    throw_invalid("a trial of another GPU", "call try_device() first");
  for (size_t i = 0; i < why_not.size(); ++i)
    reasons[i] = why_not[i].empty() ? nullptr : why_not[i].c_str();
  throw_unless_ok(outcome_of(
      gradbus_device_tried(attachment_->session(),
                           reinterpret_cast<const unsigned char*>(device.data()), reasons.data())));
}

std::unique_ptr<Operation> Session::start(const std::vector<Request>& requests, bool input_stays) {
  const OpenSession open(attachment_);
  Group group;
  for (const Request& request : requests) group.add(attachment_->session(), request, input_stays);
  gradbus_handle* handle = start_operations(attachment_, group.operations);
  return std::make_unique<Operation>(attachment_, handle, std::move(group.arrays));
}

std::string Session::compression_for(const std::string& tensor, uint64_t elements, uint32_t dims) {
  const OpenSession open(attachment_);
  const char* compression = nullptr;
  throw_unless_ok(outcome_of(gradbus_compression_for(attachment_->session(), tensor.c_str(),
                                                     elements, dims, &compression)));
  return compression;
}

gradbus_mode Session::mode_for(const std::string& tensor, uint64_t elements, uint32_t dims,
                               const std::optional<std::string>& asked) {
  const OpenSession open(attachment_);
  gradbus_mode mode;
  gradbus_mode_init(&mode);
  throw_unless_ok(outcome_of(gradbus_mode_for(attachment_->session(), tensor.c_str(), elements,
                                              dims, asked ? asked->c_str() : nullptr, &mode)));
  return mode;
}

std::optional<std::pair<std::string, std::string>> Session::next_mode_change() {
  { const OpenSession open(attachment_); }
  struct Answer {
    gradbus_mode_change change{};
    int found = 0;
  };
  auto answer = std::make_shared<Answer>();
  gradbus_mode_change_init(&answer->change);
  throw_unless_ok(call_interruptibly([attachment = attachment_, answer] {
    return outcome_of(
        gradbus_next_mode_change(attachment->session(), &answer->change, &answer->found));
  }));
  if (answer->found == 0) return {};
  return std::pair<std::string, std::string>(answer->change.group, answer->change.mode);
}

std::string Session::ask_coordinator(const std::string& question) {
  { const OpenSession open(attachment_); }
  const auto answer = std::make_shared<std::vector<char>>(GRADBUS_ANSWER_BYTES_MAX + 1);
  throw_unless_ok(call_interruptibly([attachment = attachment_, answer, question] {
    size_t bytes = 0;
    return outcome_of(gradbus_ask_coordinator(attachment->session(), question.c_str(),
                                              answer->data(), answer->size(), &bytes));
  }));
  return answer->data();
}

void Session::unregister(const std::string& name) {
  const OpenSession open(attachment_);
  throw_unless_ok(outcome_of(gradbus_unregister_name(attachment_->session(), name.c_str())));
}

void Session::report_loss(double loss) {
  const OpenSession open(attachment_);
  throw_unless_ok(outcome_of(gradbus_report_loss(attachment_->session(), loss)));
}

bool Session::tracing() {
  const OpenSession open(attachment_);
  return gradbus_tracing(attachment_->session()) != 0;
}

void Session::trace(const std::string& name, uint64_t begin_ns, uint64_t end_ns) {
  const OpenSession open(attachment_);
  throw_unless_ok(
      outcome_of(gradbus_trace(attachment_->session(), name.c_str(), begin_ns, end_ns)));
}

uint64_t Session::waited_ns() {
  const OpenSession open(attachment_);
  return gradbus_waited_ns(attachment_->session());
}

nanobind::bytes Session::job_secret() {
  const OpenSession open(attachment_);
  uint8_t secret[GRADBUS_JOB_SECRET_BYTES];
  throw_unless_ok(outcome_of(gradbus_job_secret(attachment_->session(), secret)));
  return nanobind::bytes(reinterpret_cast<const char*>(secret), sizeof(secret));
}

void Session::barrier() {
  { const OpenSession open(attachment_); }
  throw_unless_ok(call_interruptibly(
      [attachment = attachment_] { return outcome_of(gradbus_barrier(attachment->session())); }));
}

// If the caller is interrupted, the slot dies on the thread and takes the new session with it.
std::unique_ptr<Session> Session::process_set(const std::vector<int32_t>& ranks) {
  { const OpenSession open(attachment_); }
  auto slot = std::make_shared<std::shared_ptr<Attachment>>();
  throw_unless_ok(call_interruptibly([attachment = attachment_, ranks, slot] {
    gradbus_session* set = nullptr;
    Outcome outcome =
        outcome_of(gradbus_process_set(attachment->session(), ranks.data(), ranks.size(), &set));
    if (set != nullptr) *slot = std::make_shared<Attachment>(set, attachment->op_timeout_ms());
    return outcome;
  }));
  return *slot == nullptr ? nullptr : std::unique_ptr<Session>(new Session(*slot));
}

}  // namespace gradbus::python
