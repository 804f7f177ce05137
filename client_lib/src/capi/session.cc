// gradbus.h: versions, errors, sessions, process sets.
#include <cstring>

#include "client_lib/src/capi/capi.h"
#include "client_lib/src/mode_changes.h"
#include "client_lib/src/process_set.h"
#include "common/policy/sync_mode.h"
#include "shared_memory/attach_socket.h"

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
  auto op =
      seconds_variable(read_environment, "GRADBUS_OP_TIMEOUT", kOpTimeoutDefault / kMillisecond);
  auto silence = seconds_variable(read_environment, "GRADBUS_AGENT_TIMEOUT",
                                  kAgentTimeoutDefault / kMillisecond);
  if (!start.ok()) return start.status();
  if (!op.ok()) return op.status();
  if (!silence.ok()) return silence.status();
  const auto chosen = [](int64_t given_ms, int64_t otherwise) {
    return std::min(given_ms > 0 ? given_ms : otherwise, kTimeoutMsMax) * kMillisecond;
  };
  options.start_timeout = chosen(given.start_timeout_ms, start.value());
  options.op_timeout = chosen(given.op_timeout_ms, op.value());
  options.agent_timeout = silence.value() * kMillisecond;
  options.many_threads = given.many_threads != 0;
  const auto rules = [](const RuleVariable& variable) {
    return TensorRules::parse(variable, read_environment(variable.name).value_or(""));
  };
  auto compressions = rules(compression_variable());
  auto modes = rules(mode_variable());
  if (!compressions.ok()) return compressions.status();
  if (!modes.ok()) return modes.status();
  options.compressions = compressions.take();
  options.modes = modes.take();
  for (const TensorRule& rule : options.modes.rules())
    if (const auto mode = parse_mode(rule.value); !mode.ok())
      return mode.status().with_context(mode_variable().name);
  return options;
}

// The text is the policy's own: it lives as long as the session.
const char* policy_of(const Session& session, const char* tensor, uint64_t elements,
                      uint32_t dims) {
  const std::string_view found = session.options().compressions.find(tensor, elements, dims);
  return found.empty() ? "none" : found.data();  // a whole string of the policy: terminated
}

gradbus_mode as_c(const SyncMode& mode) {
  gradbus_mode known{.struct_bytes = sizeof(gradbus_mode),
                     .kind = static_cast<gradbus_mode_kind>(mode.kind),
                     .delay = mode.delay,
                     .dc = mode.dc,
                     .dc_decay = mode.dc_decay,
                     .period_steps = mode.period_steps,
                     .period_ms = mode.period_ms,
                     .outer_lr = mode.outer_lr,
                     .outer_momentum = mode.outer_momentum,
                     .fragments = mode.fragments,
                     .overlap = mode.overlap,
                     .topology = static_cast<gradbus_topology>(mode.topology),
                     .seed = mode.seed,
                     .wait = mode.wait ? 1 : 0,
                     .text = {}};
  mode.canonical.copy(known.text, sizeof(known.text) - 1);
  return known;
}

// Calls under way end with the session's error first, so that nobody is left inside it.
Status end(gradbus_session& session) {
  session.session->socket().end(ended_error(session));
  session.uses.await_leaving();
  Handles::of_this_process().end_all_of(session);
  for (const auto& [unused, tensor] : session.tensors) tensor->views->detach();
  for (const auto& tensor : session.unregistered) tensor->views->detach();
  session.session.reset();
  session.uses.end();
  Handles::of_this_process().retire(std::unique_ptr<gradbus_session>(&session));
  return {};
}

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

gradbus_code gradbus_init(const gradbus_options* options, gradbus_session** session) {
  return guarded([&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"session", session}}));
    *session = nullptr;
    gradbus_options given;
    gradbus_options_init(&given);
    if (options != nullptr) {
      GRADBUS_RETURN_IF_ERROR(read_struct("gradbus_options", options, given));
    }
    const Result<SessionOptions> chosen = to_options(given);
    if (!chosen.ok()) return chosen.status();
    auto opened = Session::open(chosen.value());
    if (!opened.ok()) return opened.status();
    *session = new gradbus_session(opened.take());
    return {};
  });
}

void gradbus_act_for_thread(int64_t thread) { act_for_thread(static_cast<pid_t>(thread)); }

// In a forked child nothing is freed: locks may be held, and the agent must not hear of it.
gradbus_code gradbus_shutdown(gradbus_session* session) {
  if (session == nullptr || session->fork_depth != fork_depth()) return GRADBUS_OK;
  return guarded([&]() -> Status {
    if (session->uses.begin_end()) return end(*session);
    session->uses.await_end();
    return ended_error(*session);
  });
}

gradbus_code gradbus_job_secret(const gradbus_session* session,
                                uint8_t secret[GRADBUS_JOB_SECRET_BYTES]) {
  return guarded(session, [&]() -> Status {
    static_assert(GRADBUS_JOB_SECRET_BYTES == kJobSecretBytes);
    GRADBUS_RETURN_IF_ERROR(check_given({{"secret", secret}}));
    std::memcpy(secret, session->session->joined().secret, kJobSecretBytes);
    return {};
  });
}

gradbus_code gradbus_compression_for(const gradbus_session* session, const char* tensor,
                                     uint64_t elements, uint32_t dims, const char** compression) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"tensor", tensor}, {"compression", compression}}));
    *compression = policy_of(*session->session, tensor, elements, dims);
    return {};
  });
}

gradbus_code gradbus_mode_for(const gradbus_session* session, const char* tensor, uint64_t elements,
                              uint32_t dims, const char* asked, gradbus_mode* mode) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"mode", mode}}));
    if (asked == nullptr && tensor == nullptr) return missing("tensor");
    const auto found = parse_mode(
        asked != nullptr ? asked : session->session->options().modes.find(tensor, elements, dims));
    if (!found.ok()) return found.status();
    return write_struct("gradbus_mode", as_c(found.value()), mode);
  });
}

gradbus_code gradbus_next_mode_change(gradbus_session* session, gradbus_mode_change* change,
                                      int* found) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"change", change}, {"found", found}}));
    if (const auto bytes = struct_bytes_of("gradbus_mode_change", change); !bytes.ok())
      return bytes.status();
    const auto next = next_mode_change(*session->session);
    if (!next.ok()) return next.status();
    *found = next.value().has_value() ? 1 : 0;
    if (!next.value()) return {};
    gradbus_mode_change known{};
    set_text(known.group, next.value()->group);
    set_text(known.mode, next.value()->mode);
    return write_struct("gradbus_mode_change", known, change);
  });
}

gradbus_code gradbus_ask_coordinator(gradbus_session* session, const char* question, char* answer,
                                     size_t capacity, size_t* answer_bytes) {
  return guarded(session, [&]() -> Status {
    static_assert(GRADBUS_ANSWER_BYTES_MAX == kAttachTextsBytesMax);
    GRADBUS_RETURN_IF_ERROR(
        check_given({{"question", question}, {"answer", answer}, {"answer_bytes", answer_bytes}}));
    const Result<std::string> found = ask_coordinator(*session->session, question);
    if (!found.ok()) return found.status();
    *answer_bytes = found.value().size();
    if (found.value().size() >= capacity)
      return error("O900",
                   "an answer of " + std::to_string(found.value().size()) + " bytes does not fit " +
                       std::to_string(capacity),
                   "give GRADBUS_ANSWER_BYTES_MAX + 1 bytes");
    std::memcpy(answer, found.value().c_str(), found.value().size() + 1);
    return {};
  });
}

gradbus_code gradbus_report_loss(gradbus_session* session, double loss) {
  return guarded(session, [&]() -> Status {
    session->session->channel().count_loss(loss);
    return {};
  });
}

int gradbus_tracing(gradbus_session* session) {
  const Use use(session);
  return use && session->session->channel().trace().on() ? 1 : 0;
}

gradbus_code gradbus_trace(gradbus_session* session, const char* name, uint64_t begin_ns,
                           uint64_t end_ns) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"name", name}}));
    if (*name == '\0') return error("O900", "argument name is an empty text");
    if (end_ns < begin_ns)
      return error("O900", "the span \"" + std::string(name) + "\" ends before it begins");
    session->session->channel().trace().add(TraceKind::kPhase, name, static_cast<Nanos>(begin_ns),
                                            static_cast<Nanos>(end_ns));
    return {};
  });
}

uint64_t gradbus_waited_ns(gradbus_session* session) {
  const Use use(session);
  return use ? session->session->channel().waited_ns() : 0;
}

int gradbus_glob_matches(const char* glob, const char* text) {
  return glob != nullptr && text != nullptr && glob_matches(glob, text) ? 1 : 0;
}

gradbus_code gradbus_process_set(gradbus_session* session, const int32_t* ranks, size_t n,
                                 gradbus_session** set) {
  return guarded(session, [&]() -> Status {
    GRADBUS_RETURN_IF_ERROR(check_given({{"set", set}}));
    if (n > 0) GRADBUS_RETURN_IF_ERROR(check_given({{"ranks", ranks}}));
    GRADBUS_RETURN_IF_ERROR(check_number(n, kRanksMax));
    *set = nullptr;
    auto opened = open_process_set(*session->session, {ranks, ranks + n});
    if (!opened.ok()) return opened.status();
    if (opened.value() != nullptr) *set = new gradbus_session(opened.take());
    return {};
  });
}

int32_t gradbus_rank(const gradbus_session* session) {
  return session == nullptr ? -1 : session->place.rank;
}
int32_t gradbus_size(const gradbus_session* session) {
  return session == nullptr ? -1 : session->place.size;
}
int32_t gradbus_local_rank(const gradbus_session* session) {
  return session == nullptr ? -1 : session->place.local_rank;
}
int32_t gradbus_local_size(const gradbus_session* session) {
  return session == nullptr ? -1 : session->place.local_size;
}
int32_t gradbus_cross_rank(const gradbus_session* session) {
  return session == nullptr ? -1 : session->place.cross_rank;
}
int32_t gradbus_cross_size(const gradbus_session* session) {
  return session == nullptr ? -1 : session->place.cross_size;
}
const char* gradbus_job(const gradbus_session* session) {
  return session == nullptr ? "" : session->identity.job.c_str();
}
const char* gradbus_launcher(const gradbus_session* session) {
  return session == nullptr ? "" : session->identity.launcher.c_str();
}
