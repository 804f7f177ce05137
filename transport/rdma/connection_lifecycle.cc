// How links begin and end. Part of RdmaTransport (rdma.h).
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "transport/net/socket.h"
#include "transport/rdma/rdma.h"

namespace gradbus {
namespace {

using Stage = Bootstrap::Stage;

constexpr int kPendingConnectionsPerPoll = 16;
// An unauthenticated peer can occupy this many queue pairs for one deadline.
constexpr size_t kPendingBootstrapsMax = 64;

bool send_whole(int fd, std::span<const std::byte> bytes) {
  return send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(bytes.size());
}

std::vector<QueuePairCard> cards_of(const std::vector<RdmaLane>& lanes) {
  std::vector<QueuePairCard> cards;
  for (const RdmaLane& lane : lanes) cards.push_back(lane.pair->card());
  return cards;
}

// The card contains the number of bytes that follow it.
IoResult read_hello(Bootstrap& from) {
  RdmaHello& hello = from.hello;
  if (from.filled < RdmaHello::kBytesMin) {
    const std::span<std::byte> first = std::as_writable_bytes(std::span(&hello, 1));
    IoResult result = read_missing(from.fd.get(), first.first(RdmaHello::kBytesMin), from.filled);
    if (result.io != Io::kMore) return result;
  }
  if (from.filled == hello.bytes().size()) return {Io::kMore, {}};
  return read_missing(from.fd.get(), hello.bytes(), from.filled);
}

bool send_byte(int fd, uint8_t value) {
  return send_whole(fd, std::as_bytes(std::span(&value, 1)));
}

}  // namespace

RdmaLink& RdmaTransport::add_link(std::string peer) {
  auto link = std::make_unique<RdmaLink>(options_.posts_max);
  link->peer = std::move(peer);
  events_max_ += link_events_max(options_.posts_max);
  events_.reserve(events_max_);
  return links_.add(std::move(link));
}

Result<std::vector<RdmaLane>> RdmaTransport::make_lanes(size_t count) {
  std::vector<RdmaLane> lanes;
  for (size_t i = 0; i < count; ++i) {
    Result<std::unique_ptr<QueuePair>> pair = QueuePair::create(*device_, options_.posts_max);
    GRADBUS_RETURN_IF_ERROR(pair.status());
    lanes.emplace_back(pair.take(), options_.posts_max);
  }
  return lanes;
}

// Connects each lane to the peer's lane of the same number.
Status RdmaTransport::connect_lanes(std::vector<RdmaLane>& lanes, const RdmaHello& peer) const {
  for (size_t i = 0; i < lanes.size(); ++i)
    GRADBUS_RETURN_IF_ERROR(lanes[i].pair->connect(peer.card_of(i), options_.peer_timeout_ms));
  return {};
}

// ---- opener

Result<LinkId> RdmaTransport::connect(std::string_view address, const FrameHeader& hello) {
  const Result<SocketAddress> peer = parse_peer_address(address);
  GRADBUS_RETURN_IF_ERROR(peer.status());
  if (links_.full())
    return error("D604", "cannot connect to " + std::string(address) + ": too many links");
  RdmaLink& link = add_link(std::string(address));
  link.hello = hello;
  Result<std::vector<RdmaLane>> lanes = make_lanes(options_.queue_pairs);
  Result<Fd> fd = start_connect(peer.value(), options_.peer_timeout_ms, {});
  for (const Status& step : {lanes.status(), fd.status()}) {
    if (step.ok()) continue;
    end_link(link, step.code(), step.message());
    return link.id;
  }
  link.lanes = lanes.take();
  link.bootstrap =
      std::make_unique<Bootstrap>(fd.take(), link.peer, Stage::kConnecting, now() + peer_timeout());
  link.bootstrap->link = &link;
  poller_.start_ticks();
  if (!poller_.watch(link.bootstrap->fd.get(), link.bootstrap.get()))
    refuse_connect(link, std::strerror(errno));
  return link.id;
}

bool RdmaTransport::say_hello(Bootstrap& bootstrap) {
  RdmaLink& link = *bootstrap.link;
  if (const int failure = socket_error(bootstrap.fd.get()); failure != 0) {
    refuse_connect(link, std::strerror(failure));
    return false;
  }
  RdmaHello hello = pack_hello(link.hello, cards_of(link.lanes), false);
  if (!send_whole(bootstrap.fd.get(), hello.bytes())) {
    // If it is not connected yet, a later edge reports that. Any other error means that the peer
    // left.
    if (errno != EAGAIN && errno != ENOTCONN) refuse_connect(link, "it went away");
    return false;
  }
  bootstrap.stage = Stage::kAnswer;
  return true;
}

bool RdmaTransport::take_answer(Bootstrap& bootstrap) {
  RdmaLink& link = *bootstrap.link;
  const IoResult result = read_hello(bootstrap);
  if (result.io == Io::kBlocked) return false;
  if (result.io != Io::kMore) {
    refuse_connect(link, "it closed the connection instead of answering",
                   "check that it is a Gradbus agent of the same version and transport");
    return false;
  }
  Status status = check_hello(bootstrap.hello, true);
  if (status.ok() && bootstrap.hello.pairs() > link.lanes.size())
    status = error("D601", "frame field payload of the hello has more queue pairs than were asked");
  if (status.ok()) {
    link.lanes.erase(link.lanes.begin() + static_cast<ptrdiff_t>(bootstrap.hello.pairs()),
                     link.lanes.end());
    status = connect_lanes(link.lanes, bootstrap.hello);
  }
  if (!status.ok()) {
    end_link(link, status.code(), status.with_context(link.peer).message());
    return false;
  }
  if (!send_byte(bootstrap.fd.get(), kReadyByte)) {
    refuse_connect(link, "it went away");
    return false;
  }
  bootstrap.stage = Stage::kUp;
  link.state = RdmaLink::State::kUp;
  live_.push_back(&link);
  events_of(link).connected();
  return true;
}

void RdmaTransport::refuse_connect(RdmaLink& link, std::string_view why, std::string_view next) {
  const Status status =
      error("D604", "cannot connect to " + link.peer + ": " + std::string(why), next);
  end_link(link, status.code(), status.message());
}

// ---- acceptor

void RdmaTransport::accept_connections() {
  for (int i = 0; i < kPendingConnectionsPerPoll; ++i) {
    Fd fd = accept_connection(listener_.get(), options_.peer_timeout_ms, {});
    if (!fd.valid()) {
      if (errno != EMFILE && errno != ENFILE) break;
      // Otherwise the waiting connection wakes the thread again and again.
      poller_.forget(listener_.get());
      listening_ = false;
      break;
    }
    if (pending_connections_.size() >= kPendingBootstrapsMax)
      dismiss(*pending_connections_.front());
    std::string peer = format_address(peer_address_of(fd.get()));
    pending_connections_.push_back(std::make_unique<Bootstrap>(
        std::move(fd), std::move(peer), Stage::kHello, now() + peer_timeout()));
    poller_.watch(pending_connections_.back()->fd.get(),
                  pending_connections_.back().get());  // if this fails, the deadline closes it
  }
  poller_.start_ticks();
}

bool RdmaTransport::take_hello(Bootstrap& pending) {
  const IoResult result = read_hello(pending);
  if (result.io == Io::kBlocked) return false;
  bool welcome = result.io == Io::kMore && check_hello(pending.hello, false).ok() && !links_.full();
  if (welcome) {
    Result<std::vector<RdmaLane>> lanes =
        make_lanes(std::min<size_t>(pending.hello.pairs(), options_.queue_pairs));
    if (lanes.ok()) pending.lanes = lanes.take();
    welcome = lanes.ok() && connect_lanes(pending.lanes, pending.hello).ok();
  }
  if (welcome) {
    RdmaHello answer = pack_hello(pending.hello.frame, cards_of(pending.lanes), true);
    welcome = send_whole(pending.fd.get(), answer.bytes());
  }
  pending.stage = Stage::kReady;
  if (!welcome) dismiss(pending);
  return welcome;
}

bool RdmaTransport::take_ready(Bootstrap& pending) {
  std::byte word{};
  size_t filled = 0;
  const IoResult result = read_missing(pending.fd.get(), {&word, 1}, filled);
  if (result.io == Io::kBlocked) return false;
  if (result.io != Io::kMore || word != std::byte{kReadyByte} || links_.full()) {
    dismiss(pending);
    return false;
  }
  const auto place = std::find_if(pending_connections_.begin(), pending_connections_.end(),
                                  [&](const auto& one) { return one.get() == &pending; });
  RdmaLink& link = add_link(pending.peer);
  link.state = RdmaLink::State::kUp;
  link.lanes = std::move(pending.lanes);
  link.bootstrap = std::move(*place);
  pending_connections_.erase(place);
  pending.stage = Stage::kUp;
  pending.link = &link;
  live_.push_back(&link);
  events_of(link).accepted(pending.hello.frame);
  return true;
}

void RdmaTransport::dismiss(Bootstrap& pending) {
  const auto place = std::find_if(pending_connections_.begin(), pending_connections_.end(),
                                  [&](const auto& one) { return one.get() == &pending; });
  std::unique_ptr<Bootstrap> leaving = std::move(*place);
  pending_connections_.erase(place);
  retire(std::move(leaving));
}

// ---- both sides

// Handles an event of the connection's socket: reads until nothing is left.
void RdmaTransport::on_socket_event(Bootstrap& bootstrap) {
  while (advance(bootstrap)) continue;
}

// Returns whether another step may follow at once.
bool RdmaTransport::advance(Bootstrap& bootstrap) {
  switch (bootstrap.stage) {
    case Stage::kConnecting: return say_hello(bootstrap);
    case Stage::kHello: return take_hello(bootstrap);
    case Stage::kAnswer: return take_answer(bootstrap);
    case Stage::kReady: return take_ready(bootstrap);
    case Stage::kUp: return take_farewell(bootstrap);
    case Stage::kRetired: return false;
  }
  return false;
}

bool RdmaTransport::take_farewell(Bootstrap& bootstrap) {
  RdmaLink& link = *bootstrap.link;
  std::byte word{};
  size_t filled = 0;
  const IoResult result = read_missing(bootstrap.fd.get(), {&word, 1}, filled);
  if (result.io == Io::kBlocked) return false;
  reap(link);  // the device may report a better reason, and earlier frames must be delivered
  if (link.state != RdmaLink::State::kUp) return false;
  const auto code = static_cast<Code>(word);
  if (result.io == Io::kFailed) {
    lose_link(link, result.status.message());
  } else if (result.io == Io::kEnded) {
    lose_link(link, "its process ended without a farewell");
  } else if (code == Code::kClosed) {
    end_link(link, Code::kClosed,
             error("P102", "link to " + link.peer + ": it closed the connection").message());
  } else {
    lose_link(link, "it ended the link: " + std::string(code_name(code)));
  }
  return false;
}

// ---- closing

void RdmaTransport::lose_link(RdmaLink& link, const std::string& why) {
  end_link(link, Code::kPeerLost, error("P102", "link to " + link.peer + ": " + why).message());
}

// Posts that the device does not have end at once. The others end when the device returns them.
void RdmaTransport::end_link(RdmaLink& link, Code code, std::string text) {
  const bool up = link.state == RdmaLink::State::kUp;
  link.state = RdmaLink::State::kEnding;
  link.end_code = code;
  link.deadline = now() + peer_timeout();
  links_.set_error(link.id, std::move(text));
  if (link.bootstrap != nullptr) {
    if (up) (void)send_byte(link.bootstrap->fd.get(), static_cast<uint8_t>(code));
    retire(std::move(link.bootstrap));
  }
  for (RdmaLane& lane : link.lanes)
    while (!lane.waiting.empty()) end_post(link, lane.waiting, true, code);
  while (!link.sends_waiting.empty()) end_post(link, link.sends_waiting, true, code);
  while (!link.receives_waiting.empty()) end_post(link, link.receives_waiting, false, code);
  poller_.wake();
  if (!up) return close_link(link);
  for (RdmaLane& lane : link.lanes) lane.pair->fail();
  poller_.start_ticks();
}

// Also called when the device does not return everything in time. Destroying the queue pairs stops
// all access to the posted bytes.
void RdmaTransport::close_link(RdmaLink& link) {
  for (RdmaLane& lane : link.lanes) {
    lane.pair.reset();
    while (!lane.sends.empty()) end_post(link, lane.sends, true, link.end_code);
    while (!lane.receives.empty()) end_post(link, lane.receives, false, link.end_code);
  }
  link.state = RdmaLink::State::kClosed;
  events_of(link).closed(link.end_code);
  poller_.wake();
}

void RdmaTransport::retire(std::unique_ptr<Bootstrap> bootstrap) {
  poller_.forget(bootstrap->fd.get());
  bootstrap->fd.reset();
  bootstrap->stage = Stage::kRetired;
  bootstrap->lanes.clear();
  retired_.push_back(std::move(bootstrap));
}

// ---- deadlines

void RdmaTransport::tick() {
  tick_due_ = false;
  poller_.end_tick();
  const Nanos now = this->now();
  while (!pending_connections_.empty() && pending_connections_.front()->deadline <= now)
    dismiss(*pending_connections_.front());
  bool needed = !pending_connections_.empty();
  links_.for_each([&](RdmaLink& link) {
    const bool connecting = link.state == RdmaLink::State::kConnecting;
    const bool ending = link.state == RdmaLink::State::kEnding;
    if (connecting && link.bootstrap->deadline <= now) {
      refuse_connect(link, "no answer within " + std::to_string(options_.peer_timeout_ms) + " ms");
    } else if (ending && link.deadline <= now) {
      close_link(link);
    } else {
      needed |= connecting || ending;
    }
  });
  std::erase_if(live_,
                [](const RdmaLink* link) { return link->state == RdmaLink::State::kClosed; });
  if (!listening_) listening_ = poller_.watch_listener(listener_.get());
  if (!needed && listening_) poller_.stop_ticks();
}

}  // namespace gradbus
