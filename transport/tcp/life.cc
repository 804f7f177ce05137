// How links begin and end. Part of TcpTransport (tcp.h).
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "transport/net/socket.h"
#include "transport/tcp/tcp.h"

namespace gradbus {
namespace {

constexpr int kGuestsPerPoll = 16;
constexpr size_t kDrainingMax = 256;
constexpr size_t kDrainStepBytes = 16 << 10;
constexpr int kDrainStepsPerTurn = 64;

}  // namespace

TcpLink& TcpTransport::add_link(std::unique_ptr<TcpLink> link) {
  link->receives.reserve(options_.posts_max);
  events_max_ += link_events_max(options_.posts_max);
  events_.reserve(events_max_);
  return links_.add(std::move(link));
}

// ---- the opener's side ----

Result<LinkId> TcpTransport::connect(std::string_view address, const FrameHeader& hello) {
  const Result<SocketAddress> peer = parse_peer_address(address);
  GRADBUS_RETURN_IF_ERROR(peer.status());
  if (links_.full()) {
    return error("D604", "cannot connect to " + std::string(address) + ": too many links");
  }
  auto opened = std::make_unique<TcpLink>();
  opened->peer = std::string(address);
  opened->greeting = {hello, random_nonce(), 0, options_.streams, false};
  opened->deadline = monotonic_now() + peer_timeout();
  TcpLink& link = add_link(std::move(opened));
  poller_.start_ticks();
  for (uint32_t i = 0; i < options_.streams; ++i) {
    const Status started = add_stream(link, peer.value());
    if (started.ok()) continue;
    end_link(link, started.code(), started.message());
    break;
  }
  return link.id;
}

Status TcpTransport::add_stream(TcpLink& link, const SocketAddress& address) {
  Result<Fd> fd = start_connect(address, options_.peer_timeout_ms, congestion_);
  GRADBUS_RETURN_IF_ERROR(fd.status());
  auto stream = std::make_unique<Stream>(fd.take(), link.peer, options_);
  stream->role = Stream::Role::kLink;
  stream->link = &link;
  work_.reserve(++streams_alive_);
  const bool watched = poller_.watch(stream->fd.get(), stream.get());
  link.streams.push_back(std::move(stream));
  if (watched) return {};
  return error("D604", "cannot watch " + link.peer + ": " + std::strerror(errno));
}

// A stream of a link that is connecting got an edge.
void TcpTransport::greet(Stream& stream) {
  TcpLink& link = *stream.link;
  if (!stream.writable || stream.up) return;
  if (!stream.greeted) {
    const int failure = socket_error(stream.fd.get());
    if (failure != 0) return refuse_connect(link, std::strerror(failure));
    congestion_.settle(stream.fd.get());
    Greeting greeting = link.greeting;
    while (link.streams[greeting.index].get() != &stream) ++greeting.index;
    if (!send_greeting(stream.fd.get(), greeting)) return refuse_connect(link, "it went away");
    stream.greeted = true;
  }
  if (stream.readable) finish_greeting(stream);
}

void TcpTransport::finish_greeting(Stream& stream) {
  TcpLink& link = *stream.link;
  const IoResult result = stream.greeting.read(stream.fd.get());
  if (result.io == Io::kBlocked) {
    stream.readable = false;
    return;
  }
  if (result.io != Io::kMore) {
    return refuse_connect(link, "it closed the connection instead of answering",
                          "check that it is a Gradbus agent of the same version: gradbus status");
  }
  const Result<Greeting> answer = unpack_greeting(stream.greeting.frame());
  if (!answer.ok()) {
    return end_link(link, answer.status().code(),
                    answer.status().with_context(link.peer).message());
  }
  if (!answer.value().answer || answer.value().nonce != link.greeting.nonce) {
    return refuse_connect(link, "its answer belongs to another link");
  }
  stream.up = true;
  if (++link.streams_up < link.streams.size()) return;
  link.state = TcpLink::State::kUp;
  events_of(link).connected();
  for (const auto& one : link.streams) queue(*one);
}

void TcpTransport::refuse_connect(TcpLink& link, std::string_view why, std::string_view next) {
  const Status status =
      error("D604", "cannot connect to " + link.peer + ": " + std::string(why), next);
  end_link(link, status.code(), status.message());
}

// ---- the acceptor's side ----

void TcpTransport::admit_guests() {
  Lobby::Streams leaving;
  for (int i = 0; i < kGuestsPerPoll; ++i) {
    Fd fd = accept_connection(listener_.get(), options_.peer_timeout_ms, congestion_);
    if (!fd.valid()) {
      if (errno != EMFILE && errno != ENFILE) break;
      poller_.forget(listener_.get());  // or the waiting connection would wake us for ever
      listening_ = false;
      break;
    }
    std::string peer = format_address(peer_address_of(fd.get()));
    auto stream = std::make_unique<Stream>(std::move(fd), std::move(peer), options_);
    work_.reserve(++streams_alive_);
    poller_.watch(stream->fd.get(), stream.get());  // unwatched, it leaves at its deadline
    lobby_.admit(std::move(stream), monotonic_now() + peer_timeout(), leaving);
  }
  retire_all(leaving);
  poller_.start_ticks();
}

void TcpTransport::hear_guest(Stream& guest) {
  Lobby::Streams leaving;
  std::optional<Lobby::Party> party = lobby_.hear(guest, leaving);
  retire_all(leaving);
  if (party) accept_party(std::move(*party));
}

void TcpTransport::accept_party(Lobby::Party party) {
  bool answered = !links_.full();
  Greeting answer = party.greeting;
  answer.answer = true;
  for (uint32_t i = 0; i < party.streams.size() && answered; ++i) {
    answer.index = i;
    answered = send_greeting(party.streams[i]->fd.get(), answer);
  }
  if (!answered) return retire_all(party.streams);
  auto accepted = std::make_unique<TcpLink>();
  accepted->peer = party.streams.front()->peer;
  accepted->state = TcpLink::State::kUp;
  accepted->streams = std::move(party.streams);
  TcpLink& link = add_link(std::move(accepted));
  events_of(link).accepted(party.greeting.hello);
  for (const auto& stream : link.streams) {
    stream->role = Stream::Role::kLink;
    stream->link = &link;
    queue(*stream);
  }
}

// ---- the end ----

// The other side ended it, or the network did.
void TcpTransport::lose_link(TcpLink& link) {
  const bool orderly = link.broken.ok();
  const std::string why = orderly ? "it closed the connection" : link.broken.message();
  end_link(link, orderly ? Code::kClosed : Code::kPeerLost,
           error("P102", "link to " + link.peer + ": " + why).message());
}

void TcpTransport::end_link(TcpLink& link, Code code, std::string text) {
  LinkEvents events = events_of(link);
  const bool drain = code == Code::kClosed && link.state == TcpLink::State::kUp;
  link.state = TcpLink::State::kClosed;
  for (auto& stream : link.streams) {
    const bool whole = !stream->writer.mid_frame();
    stream->reader.abandon(events, code);
    stream->writer.abandon(events, code);
    part(std::move(stream), drain && whole);
  }
  link.streams.clear();
  for (; !link.receives.empty(); link.receives.pop()) {
    events.received(link.receives.front().token, code, 0);
  }
  events.closed(code);
  links_.set_error(link.id, std::move(text));
  poller_.wake();
}

// Closing a socket with unread bytes in it resets the connection, and a reset throws away what the
// peer has not read yet, frames included that were reported as sent. So: half-close, then read on
// until the peer closes too.
void TcpTransport::part(std::unique_ptr<Stream> stream, bool drain) {
  stream->link = nullptr;
  if (!drain || stream->ended || draining_.size() >= kDrainingMax) return retire(std::move(stream));
  (void)shutdown(stream->fd.get(), SHUT_WR);
  stream->role = Stream::Role::kDraining;
  stream->readable = true;
  queue(*stream);
  draining_.push_back({std::move(stream), monotonic_now() + peer_timeout()});
  poller_.start_ticks();
}

void TcpTransport::drain(Stream& stream) {
  std::array<std::byte, kDrainStepBytes> unwanted;
  for (int step = 0; step < kDrainStepsPerTurn; ++step) {
    const ssize_t bytes = recv(stream.fd.get(), unwanted.data(), unwanted.size(), MSG_DONTWAIT);
    if (bytes > 0) continue;
    if (bytes < 0 && (errno == EAGAIN || errno == EINTR)) return;
    for (Draining& one : draining_) {
      if (one.stream.get() == &stream) retire(std::move(one.stream));
    }
    std::erase_if(draining_, [](const Draining& one) { return one.stream == nullptr; });
    return;
  }
  queue(stream);
}

void TcpTransport::retire(std::unique_ptr<Stream> stream) {
  poller_.forget(stream->fd.get());
  stream->fd.reset();
  stream->role = Stream::Role::kRetired;
  --streams_alive_;
  for (size_t left = stream->queued ? work_.size() : 0; left > 0; --left) {
    Stream* const other = work_.front();
    work_.pop();
    if (other != stream.get()) work_.push(other);
  }
  stream->queued = false;
  retired_.push_back(std::move(stream));
}

void TcpTransport::retire_all(Lobby::Streams& streams) {
  for (auto& stream : streams) retire(std::move(stream));
  streams.clear();
}

}  // namespace gradbus
