#include "client_lib/src/wait_loop.h"

#include "client_lib/src/session.h"
#include "common/errors.h"
#include "proto/tensor_names.h"

namespace gradbus {
namespace {

constexpr Nanos kBlockedReportEvery = AgentSilence::kLookEvery;
// A dead agent is noticed on its socket between two sleeps, so this bounds how late.
constexpr Nanos kSleepSlice = 50 * kMillisecond;
constexpr Nanos kSleepSliceWhileRegistering = 2 * kMillisecond;
constexpr Nanos kSleepSliceBesideStreams = kMillisecond;

}  // namespace

Status WaitLoop::until_settled(const Registration& registration, Nanos timeout, WaitClock& clock) {
  const Nanos started = monotonic_now();
  clock.begin(started, parts_.operations.advances());
  const WaitSubject subject{registration.spec.name, 0, clock};
  for (;;) {
    parts_.session.progress();
    if (registration.settled()) return registration.failure;
    GRADBUS_RETURN_IF_ERROR(parts_.socket.failure());
    const Nanos now = monotonic_now();
    if (now - started > timeout) return timed_out(subject, now - clock.began, nullptr);
    report_when_due(subject, now);
    parts_.socket.wait(socket_slice());
  }
}

Status WaitLoop::until_stored(const std::atomic<bool>& done, Nanos timeout, Nanos sleep,
                              const std::string& what) {
  const Nanos deadline = monotonic_now() + timeout;
  while (!done.load(std::memory_order_acquire)) {
    parts_.session.progress();
    if (done.load(std::memory_order_acquire)) break;
    GRADBUS_RETURN_IF_ERROR(parts_.socket.failure());
    if (monotonic_now() >= deadline)
      return error("P110", "rank " + std::to_string(parts_.joined.rank) + " waited " +
                               std::to_string(timeout / kSecond) + " s for " + what);
    parts_.socket.wait(sleep);
  }
  return {};
}

Status WaitLoop::why_failed() {
  const Nanos deadline = monotonic_now() + kSecond;
  for (;;) {
    parts_.session.receive();
    Status known = parts_.socket.failure();
    if (!known.ok()) return known;
    if (monotonic_now() >= deadline)
      return error("X001", "the operation failed and the agent gave no reason within 1 s");
    parts_.socket.wait(10 * kMillisecond);
  }
}

void WaitLoop::trace_wait(const WaitSubject& subject, Nanos started) {
  TraceWriter& trace = parts_.channel.trace();
  const Nanos now = monotonic_now();
  subject.tensor != 0 ? trace.add(TraceKind::kWait, subject.tensor, subject.round, started, now)
                      : trace.add(TraceKind::kWait, subject.name, started, now);
}

Nanos WaitLoop::sleep_slice(const WaitSubject& subject) const {
  if (parts_.registry.streams.load(std::memory_order_relaxed) > (subject.stream ? 1 : 0))
    return kSleepSliceBesideStreams;
  return parts_.registry.unsettled.load(std::memory_order_relaxed) > 0 ? kSleepSliceWhileRegistering
                                                                       : kSleepSlice;
}

// This session's own answers end the sleep, those of others do not.
Nanos WaitLoop::socket_slice() const {
  if (parts_.registry.streams.load(std::memory_order_relaxed) > 0) return kSleepSliceBesideStreams;
  const bool others =
      parts_.registry.unsettled.load(std::memory_order_relaxed) > parts_.tensors.unsettled();
  return others ? kSleepSliceWhileRegistering : kSleepSlice;
}

Status WaitLoop::between_sleeps(const LocalReduction& local_reduction, const WaitSubject& subject,
                                Nanos started, Nanos timeout) {
  parts_.session.progress();
  const Nanos now = monotonic_now();
  report_when_due(subject, now);
  GRADBUS_RETURN_IF_ERROR(parts_.socket.failure());
  if (now - started >= timeout)
    return timed_out(subject, now - subject.clock.began, &local_reduction);
  return {};
}

void WaitLoop::report_when_due(const WaitSubject& subject, Nanos now) {
  subject.clock.look(now, parts_.operations.advances());
  if (now - subject.clock.reported < kBlockedReportEvery) return;
  subject.clock.reported = now;
  parts_.socket.report_blocked(subject.name, subject.round, now - subject.clock.advanced,
                               !submitting_threads_.blocked_with_this_thread(), now);
}

Status WaitLoop::timed_out(const WaitSubject& subject, Nanos waited,
                           const LocalReduction* local_reduction) {
  std::string what = "rank " + std::to_string(parts_.joined.rank) + " waited " +
                     seconds_text(waited) + " for \"" + std::string(shown_name(subject.name)) +
                     "\"";
  what += subject.round == 0 ? " to be registered by all ranks"
                             : " round " + std::to_string(subject.round);
  for (uint32_t local = 0;
       local_reduction != nullptr && local < local_reduction->shape().local_size; ++local)
    if (!local_reduction->posted(local, subject.round))
      what += "; local rank " + std::to_string(local) + " has not started it";
  if (const std::string notice = parts_.socket.notice(); !notice.empty()) what += "; " + notice;
  return error("P110", what);
}

}  // namespace gradbus
