// gradbus.h: versions, errors, sessions, process sets.
#include "client_lib/src/capi/capi.h"
#include "client_lib/src/process_set.h"

namespace gradbus::capi {
namespace {

thread_local std::string last_error;

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
  auto policy = CompressionPolicy::parse(read_environment("GRADBUS_COMPRESSION").value_or(""));
  if (!policy.ok()) return policy.status();
  options.compression = policy.take();
  return options;
}

// The text is the policy's own: it lives as long as the session.
Result<const char*> policy_of(const Session& session, const char* tensor, uint64_t elements,
                              uint32_t dims) {
  if (tensor == nullptr) return missing("tensor");
  const std::string_view found = session.compression().find(tensor, elements, dims);
  return found.empty() ? "none" : found.data();  // a whole string of the policy: terminated
}

int32_t as_int(uint32_t value) { return static_cast<int32_t>(value); }

}  // namespace

gradbus_code report(const Status& status) {
  if (!status.ok()) last_error = status.message();
  return static_cast<gradbus_code>(status.code());
}

}  // namespace gradbus::capi

using namespace gradbus;
using namespace gradbus::capi;

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
      GRADBUS_RETURN_IF_ERROR(
          check_struct("gradbus_options", options->struct_bytes, sizeof(gradbus_options)));
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

gradbus_code gradbus_compression_for(const gradbus_session* session, const char* tensor,
                                     uint64_t elements, uint32_t dims, const char** compression) {
  return guarded([&]() -> Status {
    if (session == nullptr || compression == nullptr) return missing("session or compression");
    const Result<const char*> found = policy_of(*session->session, tensor, elements, dims);
    if (found.ok()) *compression = found.value();
    return found.status();
  });
}

gradbus_code gradbus_process_set(gradbus_session* session, const int32_t* ranks, size_t n,
                                 gradbus_session** set) {
  return guarded([&]() -> Status {
    if (session == nullptr || set == nullptr) return missing("session or set");
    if (ranks == nullptr && n > 0) return missing("ranks");
    *set = nullptr;
    auto opened = open_process_set(*session->session, {ranks, ranks + n});
    if (!opened.ok()) return opened.status();
    if (opened.value() != nullptr) *set = new gradbus_session{opened.take()};
    return {};
  });
}

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
