// Returns to a better path. Part of FailoverTransport (failover.h).
//
// The opener of a link that is not on its first path probes the paths before it, one at a time. It
// opens a control link there and waits for one state on it. That state has then travelled in both
// directions. After kAnswersToReturn answers in a row, some time apart, the link leaves its path
// like a broken one, and tries the better one first. recovery.cc handles all failures of that.
//
// Probes are return_ms apart. Without answers the interval doubles, up to kFailuresMax times. Each
// return that did not last that long also doubles it, up to kRelapsesMax times. So an unstable path
// is used less and less often.
#include <algorithm>

#include "transport/failover/failover.h"

namespace gradbus {
namespace {

using State = FailoverLink::State;
using Return = FailoverLink::Return;

constexpr uint32_t kAnswersToReturn = 2;
constexpr uint32_t kFailuresMax = 3;
constexpr uint32_t kRelapsesMax = 6;

}  // namespace

Nanos return_pause(Nanos pause, uint32_t failures, uint32_t relapses) {
  return pause << std::max(std::min(failures, kFailuresMax), std::min(relapses, kRelapsesMax));
}

Nanos FailoverTransport::pause_of(const FailoverLink& link) const {
  return return_pause(options_.return_ms * kMillisecond, link.probe_failures, link.relapses);
}

bool FailoverTransport::wants_better(const FailoverLink& link) const {
  if (options_.return_ms == 0 || !link.opener || link.state != State::kUp || !link.peer_ready)
    return false;
  const auto current = link.candidates.begin() + static_cast<ptrdiff_t>(link.candidate);
  return std::any_of(link.candidates.begin(), current, is_usable);
}

// ---- probing

void FailoverTransport::plan_return(FailoverLink& link) {
  link.probed = link.answers = link.probe_failures = 0;
  link.probe_at = now() + pause_of(link);
  if (wants_better(link)) poller_.start_ticks();
}

// Returns whether the link still needs a better path.
bool FailoverTransport::seek_better(FailoverLink& link, Nanos now) {
  if (!wants_better(link)) return false;
  if (link.probe == nullptr && now >= link.probe_at) begin_probe(link);
  return true;
}

void FailoverTransport::begin_probe(FailoverLink& link) {
  const Candidate& candidate = link.candidates[link.probed];
  if (!is_usable(candidate)) return probe_failed(link);
  PathHello greeting{link.greeting.session, kProbeAttempt, true, true};
  const Result<LinkId> opened = inner_[candidate.inner].transport->connect(
      candidate.address, pack_path_hello(link.hello, greeting));
  if (!opened.ok()) return probe_failed(link);
  Half& half = add_half(candidate.inner, opened.value(), true);
  half.asks_for = &link;
  link.probe = &half;
  serve_control(half);
}

// The probe's deadline has passed, or it has ended. The next probe is for the next candidate.
void FailoverTransport::probe_failed(FailoverLink& link) {
  link.answers = 0;
  if (++link.probed >= link.candidate) {
    link.probed = 0;
    ++link.probe_failures;
  }
  link.probe_at = now() + pause_of(link);
}

void FailoverTransport::probe_answered(Half& half, const FrameHeader& frame) {
  const Result<LinkState> state = unpack_link_state(frame);
  if (!state.ok() || state.value().notice != Notice::kState)
    return transport_of(half).disconnect(half.id);  // probe_failed() follows when it is closed
  FailoverLink& link = *half.asks_for;
  end_probe(link);
  link.probe_failures = 0;
  link.probe_at = now() + pause_of(link) / 4;
  if (++link.answers < kAnswersToReturn) return;
  link.returning = Return::kLeaving;
  leave(link, Code::kOk, "left for " + link.candidates[link.probed].name);
}

void FailoverTransport::end_probe(FailoverLink& link) {
  if (link.probe == nullptr) return;
  link.probe->asks_for = nullptr;
  release(link.probe);
}

// The opener of one of our links probes. Other peers get no answer.
void FailoverTransport::accept_probe(Half& half) {
  if (!half.control || find_session(half) == nullptr) return transport_of(half).disconnect(half.id);
  half.pending = false;
  serve_control(half);
  (void)send_control(half);
}

// ---- returning

// The left path uses no memory any more: the better one is tried first.
void FailoverTransport::begin_return(FailoverLink& link) {
  if (link.returning != Return::kLeaving) return;
  link.returning = Return::kTrying;
  link.candidate = (link.probed + link.candidates.size() - 1) % link.candidates.size();
}

// A path is up. Returns whether it is the one that the link wanted.
bool FailoverTransport::note_return(FailoverLink& link) {
  if (link.returning != Return::kTrying) return false;
  const bool back = link.candidate == link.probed;
  link.returning = back ? Return::kBack : Return::kNone;
  if (!back) ++link.relapses;
  return back;
}

void FailoverTransport::note_left(FailoverLink& link, bool was_up) {
  if (!was_up || link.returning != Return::kBack) return;
  link.returning = Return::kNone;
  const bool lasted = now() - link.up_since >= pause_of(link);
  link.relapses = lasted ? 0 : link.relapses + 1;
}

}  // namespace gradbus
