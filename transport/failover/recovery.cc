// Changes from one path to the next. Part of FailoverTransport (failover.h).
#include <algorithm>

#include "common/errors.h"
#include "common/log.h"
#include "transport/failover/failover.h"

namespace gradbus {
namespace {

using State = FailoverLink::State;

// No path answers, and all refuse at once: the peer's process is gone.
constexpr uint32_t kRoundsMax = 4;
// The maximum of paths that come up, carry no frame and break again.
constexpr uint32_t kFruitlessMax = 16;

bool is_corrupt(Code code) { return code == Code::kCorrupt || code == Code::kVersion; }

bool none_is_usable(const FailoverLink& link) {
  return std::none_of(link.candidates.begin(), link.candidates.end(), is_usable);
}

// For each path, why it is not available.
std::string reasons(const FailoverLink& link) {
  std::string text;
  for (const Candidate& candidate : link.candidates)
    text += (text.empty() ? "" : "; ") + candidate.name + ": " + candidate.why;
  return text;
}

}  // namespace

// ---- the opener looks for a path

void FailoverTransport::try_next(FailoverLink& link) {
  while (link.tried < link.candidates.size()) {
    link.candidate = (link.candidate + 1) % link.candidates.size();
    ++link.tried;
    if (is_usable(link.candidates[link.candidate]) && begin_attempt(link)) return;
  }
  round_failed(link);
}

// Returns false when it ended at once.
bool FailoverTransport::begin_attempt(FailoverLink& link) {
  Candidate& candidate = link.candidates[link.candidate];
  if (link.greeting.attempt == kAttemptsMax) return false;
  ++link.greeting.attempt;
  const auto paths = static_cast<Nanos>(link.candidates.size());
  Half** places[] = {&link.path.data, &link.path.control};
  for (Half** place : places) {
    link.greeting.control = place == &link.path.control;
    const Result<LinkId> opened = inner_[candidate.inner].transport->connect(
        candidate.address, pack_path_hello(link.hello, link.greeting));
    if (!opened.ok()) {
      candidate.why = opened.status().message();
      if (link.path.data != nullptr) release(link.path.data);
      return false;
    }
    *place = &add_half(candidate.inner, opened.value(), link.greeting.control);
    (*place)->link = &link;
  }
  link.state = State::kTrying;
  // In the first round each path gets the time that a plain link has.
  link.path_deadline = now() + (link.announced ? peer_timeout() / (paths + 1) : 2 * peer_timeout());
  poller_.start_ticks();
  return true;
}

void FailoverTransport::round_failed(FailoverLink& link) {
  const bool none = none_is_usable(link);
  if (!link.announced && !none) {
    const Status status = error("D604", "cannot connect to " + link.peer + ": " + reasons(link));
    return end_link(link, status.code(), status.message());
  }
  link.rounds += link.cut_short ? 0 : 1;
  link.cut_short = false;
  link.tried = 0;
  if (none || link.rounds >= kRoundsMax || now() >= link.deadline) return give_up(link);
  link.state = State::kWaiting;
  link.retry_at = now() + grace();
  poller_.start_ticks();
}

void FailoverTransport::give_up(FailoverLink& link) {
  if (is_corrupt(link.why_code)) {
    const Status status =
        error(link.why_code == Code::kVersion ? "V801" : "D601", link.peer + ": " + link.why);
    return end_link(link, status.code(), status.message());
  }
  const std::string what = link.opener ? reasons(link) : link.why + ", and it did not come back";
  end_link(link, Code::kPeerLost,
           error("P102", "link to " + link.peer + ": no path is left: " + what).message());
}

// ---- a path comes up

// Both halves are up here. The first message on the path reports what was received.
void FailoverTransport::attach(FailoverLink& link, Path path) {
  link.path = path;
  if (!link.opener) {
    link.state = State::kUp;
    const size_t before = std::exchange(link.candidate, path.data->inner);
    link.better = link.candidate < before;
    link.path_deadline = now() + peer_timeout();
    poller_.start_ticks();
  }
  link.peer_ready = false;
  link.rounds = 0;
  link.state_due = true;
  serve_control(*path.control);
  queue(link);
}

void FailoverTransport::announce(FailoverLink& link) {
  if (link.announced) return;
  link.announced = true;
  events_of(link).connected();
}

// The other side is ready for frames, and has reported its state.
void FailoverTransport::path_answered(FailoverLink& link) {
  announce(link);
  link.state = State::kUp;
  link.peer_ready = true;
  link.greeting.answered = true;
  link.deadline = 0;
  link.tried = 0;
  link.progress = false;
  link.up_since = now();
  link.sends.rewind();
  queue(link);
  count_on(link);
  const bool back = note_return(link) || link.better;
  plan_return(link);
  if (link.why.empty()) return;
  ++link.switches;
  switches_.add(1);
  const std::string& now = link.candidates[link.candidate].name;
  if (back) {
    spdlog::info("link to {} of job {}: {} works again; switch {} of this link", link.peer,
                 link.hello.job, now, link.switches);
  } else {
    spdlog::warn("link to {} of job {}: a path ended ({}), now {}; switch {} of this link",
                 link.peer, link.hello.job, link.why, now, link.switches);
  }
  link.why.clear();
}

// ---- the number of links per path

void FailoverTransport::count_on(FailoverLink& link) {
  if (!std::exchange(link.counted, true)) links_on_[link.candidates[link.candidate].inner].add(1);
}

void FailoverTransport::count_off(FailoverLink& link) {
  if (std::exchange(link.counted, false))
    links_on_[link.candidates[link.candidate].inner].subtract(1);
}

// ---- leaving a path

void FailoverTransport::count_fault(FailoverLink& link, Code code) {
  Candidate& candidate = link.candidates[link.candidate];
  candidate.corrupt += is_corrupt(code) ? 1 : 0;
  if (!link.peer_ready) return;
  const bool brief = now() - link.up_since < peer_timeout();
  link.fruitless = brief && !link.progress ? link.fruitless + 1 : 0;
}

void FailoverTransport::leave(FailoverLink& link, Code code, std::string why) {
  if (link.state != State::kUp && link.state != State::kTrying) return;
  if (why.empty()) why = "it was closed";
  const Nanos now = this->now();
  const bool was_up = link.state == State::kUp;
  if (link.announced && link.deadline == 0)
    link.deadline = now + (link.opener ? 1 : 2) * peer_timeout();
  // During recovery, only a corrupt frame is a better reason than the first one.
  if (was_up || link.why.empty() || is_corrupt(code)) {
    link.why_code = code;
    link.why = why;
  }
  link.candidates[link.candidate].why = std::move(why);
  end_probe(link);
  count_off(link);
  if (link.returning != FailoverLink::Return::kLeaving) count_fault(link, code);
  note_left(link, was_up);
  link.state = State::kLeaving;
  link.peer_ready = false;
  link.path_deadline = now + grace();
  poller_.start_ticks();
  const bool goodbye_may_come = was_up && link.path.data == nullptr && !is_corrupt(code);
  if (link.path.data != nullptr) transport_of(*link.path.data).disconnect(link.path.data->id);
  if (Half* control = link.path.control; control != nullptr) {
    control->due = Notice::kLeaving;
    if (goodbye_may_come && control->serves) {
      control->said = link.taken.taken();
      (void)send_control(*control);
    } else {
      transport_of(*control).disconnect(control->id);
    }
  }
  if (link.path.gone()) path_gone(link);
}

// All of its posts were returned.
void FailoverTransport::path_gone(FailoverLink& link) {
  if (link.fruitless >= kFruitlessMax) return give_up(link);
  begin_return(link);
  if (link.opener) return try_next(link);
  if (link.next.data != nullptr) return attach(link, std::exchange(link.next, {}));
  if (none_is_usable(link)) return give_up(link);
  link.state = State::kWaiting;
  poller_.start_ticks();
}

}  // namespace gradbus
