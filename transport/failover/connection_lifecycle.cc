// Begin and end of links, and all deadlines. Part of FailoverTransport (failover.h).
#include <algorithm>

#include "common/errors.h"
#include "common/text/error_text.h"
#include "transport/failover/failover.h"
#include "transport/tcp/hello.h"

namespace gradbus {
namespace {

using State = FailoverLink::State;

// An unauthenticated peer can occupy this many inner links for one deadline.
constexpr size_t kPendingHalvesMax = 1024;

bool same_peer_link(const FrameHeader& one, const FrameHeader& other) {
  return one.job == other.job && one.source == other.source && one.epoch == other.epoch &&
         one.total == other.total;
}

}  // namespace

FailoverLink& FailoverTransport::add_link() {
  events_max_ += link_events_max(options_.posts_max);
  events_.reserve(events_max_);
  work_.reserve(++links_alive_);
  return links_.add(std::make_unique<FailoverLink>(options_.posts_max));
}

Half& FailoverTransport::add_half(uint32_t inner, LinkId id, bool control) {
  auto half = std::make_unique<Half>();
  half->inner = inner;
  half->id = id;
  half->control = control;
  half->deadline = now() + peer_timeout();
  auto& halves = inner_[inner].halves;
  if (halves.size() <= id.index) halves.resize(id.index + 1);
  halves[id.index] = std::move(half);
  poller_.start_ticks();
  return *halves[id.index];
}

// ---- opener

Result<LinkId> FailoverTransport::connect(std::string_view address, const FrameHeader& hello) {
  const Result<std::vector<PathAddress>> paths = parse_paths(address);
  GRADBUS_RETURN_IF_ERROR(paths.status());
  std::vector<std::string> own;
  for (const Inner& inner : inner_) own.push_back(inner.name);
  std::vector<Candidate> candidates;
  std::string theirs;
  for (const PathPair& pair : pair_paths(own, paths.value())) {
    const PathAddress& path = paths.value()[pair.peer];
    candidates.push_back({static_cast<uint32_t>(pair.own), path.address,
                          path.transport + " " + path.address, "", 0});
  }
  if (candidates.empty() || links_.full()) {
    return error("D604", "cannot connect to " + std::string(address) +
                             (links_.full()
                                  ? ": too many links"
                                  : ": no path of it is of a transport that " + address_ + " has"));
  }
  FailoverLink& link = add_link();
  link.opener = true;
  link.peer = std::string(address);
  link.hello = hello;
  link.greeting.session = static_cast<uint32_t>(random_nonce());
  link.candidate = candidates.size() - 1;  // the first candidate is tried first
  link.candidates = std::move(candidates);
  try_next(link);
  return link.id;
}

// ---- acceptor

void FailoverTransport::accepted(uint32_t inner, const TransportEvent& event) {
  FrameHeader hello = event.hello;
  const PathHello greeting = unpack_path_hello(hello);
  Half& half = add_half(inner, event.link, greeting.control);
  half.up = half.pending = true;
  half.hello = hello;
  half.greeting = greeting;
  if (greeting.attempt == kProbeAttempt) return accept_probe(half);
  const auto partner =
      std::find_if(pending_halves_.begin(), pending_halves_.end(), [&](const Half* other) {
        return other->inner == inner && other->control != half.control &&
               other->greeting.session == greeting.session &&
               other->greeting.attempt == greeting.attempt && same_peer_link(other->hello, hello);
      });
  if (partner == pending_halves_.end()) {
    if (pending_halves_.size() == kPendingHalvesMax) {
      Half* oldest = pending_halves_.front();
      oldest->pending = false;
      pending_halves_.erase(pending_halves_.begin());
      release(oldest);
    }
    pending_halves_.push_back(&half);
    return;
  }
  Half& other = **partner;
  pending_halves_.erase(partner);
  half.pending = other.pending = false;
  if (half.control) {
    accept_path(other, half);
  } else {
    accept_path(half, other);
  }
}

FailoverLink* FailoverTransport::find_session(const Half& half) {
  FailoverLink* found = nullptr;
  links_.for_each([&](FailoverLink& link) {
    if (!link.opener && link.greeting.session == half.greeting.session &&
        same_peer_link(link.hello, half.hello) && open_link(link.id) != nullptr)
      found = &link;
  });
  return found;
}

void FailoverTransport::accept_path(Half& data, Half& control) {
  FailoverLink* link = find_session(data);
  if (link == nullptr && data.greeting.answered) return refuse_path(data, control);
  if (link == nullptr) return accept_link(data, control);
  Half* halves[] = {&data, &control};
  if (data.greeting.attempt <= link->greeting.attempt || !is_usable(link->candidates[data.inner])) {
    for (Half* half : halves) release(half);
    return;
  }
  link->greeting = data.greeting;
  for (Half** old : {&link->next.data, &link->next.control})
    if (*old != nullptr) release(*old);
  for (Half* half : halves) half->link = link;
  if (link->state == State::kWaiting) return attach(*link, {&data, &control});
  link->next = {&data, &control};
  if (link->state == State::kUp) return leave(*link, Code::kPeerLost, "the other side has left it");
  if (link->path.control != nullptr)
    transport_of(*link->path.control).disconnect(link->path.control->id);
}

void FailoverTransport::accept_link(Half& data, Half& control) {
  Half* halves[] = {&data, &control};
  if (links_.full()) {
    for (Half* half : halves) release(half);
    return;
  }
  FailoverLink& link = add_link();
  link.hello = data.hello;
  link.greeting = data.greeting;
  link.peer = "agent " + std::to_string(data.hello.source);
  for (uint32_t i = 0; i < inner_.size(); ++i) {
    const std::string own = inner_[i].transport->local_address();
    link.candidates.push_back({i, own, inner_[i].name + " at " + own, "", 0});
  }
  for (Half* half : halves) half->link = &link;
  FrameHeader hello = link.hello;
  link.announced = true;
  events_of(link).accepted(hello);
  attach(link, {&data, &control});
}

// The opener's link has already ended here.
void FailoverTransport::refuse_path(Half& data, Half& control) {
  Half* unwanted = &data;
  release(unwanted);
  serve_control(control);
  say_goodbye(control, Code::kClosed, {});
}

// ---- closing

// Releases a half from its owner; its inner link ends.
void FailoverTransport::release(Half*& half) {
  half->link = nullptr;
  half->deadline = now() + peer_timeout();
  transport_of(*half).disconnect(half->id);
  half = nullptr;
}

void FailoverTransport::half_closed(Half& half, Code code) {
  FailoverLink* link = half.link;
  const std::string why = what_of(transport_of(half).link_error(half.id));
  if (half.pending) std::erase(pending_halves_, &half);
  FailoverLink* const asks_for = std::exchange(half.asks_for, nullptr);
  if (half.serves) transport_of(half).unregister_memory(half.region);
  bool current = false;
  if (link != nullptr) {
    for (Half** place : {&link->path.data, &link->path.control}) {
      if (*place != &half) continue;
      *place = nullptr;
      current = true;
    }
    if (link->next.data == &half || link->next.control == &half) {
      Half* other = link->next.data == &half ? link->next.control : link->next.data;
      link->next = {};
      release(other);
    }
  }
  inner_[half.inner].halves[half.id.index].reset();
  if (asks_for != nullptr) {
    asks_for->probe = nullptr;
    return probe_failed(*asks_for);
  }
  if (!current) return;
  switch (link->state) {
    case State::kTrying:
    case State::kUp: return leave(*link, code, why);
    case State::kLeaving:
      if (link->path.gone()) path_gone(*link);
      return;
    case State::kEnding:
      if (link->path.data == nullptr) finish(*link);
      return;
    case State::kWaiting:
    case State::kClosed: return;
  }
}

// Sends the goodbye, then ends the control link without waiting.
void FailoverTransport::say_goodbye(Half& control, Code code, const TakenFrames& taken) {
  control.link = nullptr;
  control.deadline = now() + peer_timeout();
  control.said = taken;
  control.due = Notice::kGoodbye;
  control.farewell = code;
  if (!control.serves || !control.up) return transport_of(control).disconnect(control.id);
  (void)send_control(control);
  poller_.start_ticks();
}

void FailoverTransport::end_link(FailoverLink& link, Code code, std::string text) {
  if (link.state == State::kEnding || link.state == State::kClosed) return;
  link.state = State::kEnding;
  link.end_code = code;
  end_probe(link);
  count_off(link);
  links_.set_error(link.id, std::move(text));
  for (Half** half : {&link.next.data, &link.next.control})
    if (*half != nullptr) release(*half);
  if (link.path.control != nullptr)
    say_goodbye(*std::exchange(link.path.control, nullptr), code, link.taken.taken());
  poller_.wake();
  if (link.path.data == nullptr) return finish(link);
  transport_of(*link.path.data).disconnect(link.path.data->id);
}

// No path uses its memory any more.
void FailoverTransport::finish(FailoverLink& link) {
  link.state = State::kClosed;
  link.sends.end_all(events_of(link), link.end_code);
  link.receives.end_all(events_of(link), link.end_code);
  events_of(link).closed(link.end_code);
  poller_.wake();
}

// ---- deadlines

void FailoverTransport::tick() {
  tick_due_ = false;
  poller_.end_tick();
  const Nanos now = this->now();
  bool needed = false;
  for (Inner& inner : inner_) needed |= tick_halves(inner, now);
  links_.for_each([&](FailoverLink& link) { needed |= tick_link(link, now); });
  if (!needed) poller_.stop_ticks();
}

// Handles pending halves, and halves whose link is over.
bool FailoverTransport::tick_halves(Inner& inner, Nanos now) {
  bool needed = false;
  for (const auto& half : inner.halves) {
    if (half == nullptr || half->link != nullptr) continue;
    needed = true;
    if (half->due == Notice::kGoodbye && half->told != Notice::kGoodbye) (void)send_control(*half);
    if (half->deadline <= now) inner.transport->disconnect(half->id);
  }
  return needed;
}

// Returns whether the link still has a deadline.
bool FailoverTransport::tick_link(FailoverLink& link, Nanos now) {
  const bool late = now >= link.path_deadline;
  switch (link.state) {
    case State::kUp:
    case State::kTrying:
      if (link.peer_ready) return seek_better(link, now);
      if (!late) return true;
      link.cut_short = true;
      leave(link, Code::kPeerLost, "no answer");
      return true;
    case State::kLeaving:
      if (late && link.path.control != nullptr)
        transport_of(*link.path.control).disconnect(link.path.control->id);
      return true;
    case State::kWaiting:
      if (now >= link.deadline) {
        give_up(link);
      } else if (link.opener && now >= link.retry_at) {
        try_next(link);
      }
      return true;
    case State::kEnding:
    case State::kClosed: return false;
  }
  return false;
}

}  // namespace gradbus
