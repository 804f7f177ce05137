// How links begin and end. Part of TcpTransport (tcp.h).
#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "common/system_error.h"
#include "transport/net/local_socket.h"
#include "transport/net/socket.h"
#include "transport/tcp/tcp.h"

namespace gradbus {
namespace {

constexpr int kPendingConnectionsPerPoll = 16;
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

// ---- opener

Result<LinkId> TcpTransport::connect(std::string_view address, const FrameHeader& hello) {
  const Result<SocketAddress> peer = parse_peer_address(address);
  GRADBUS_RETURN_IF_ERROR(peer.status());
  if (links_.full()) {
    return error("D604", "cannot connect to " + std::string(address) + ": too many links");
  }
  auto opened = std::make_unique<TcpLink>();
  opened->peer = std::string(address);
  opened->greeting = {hello, random_nonce(), 0, options_.streams, false};
  opened->deadline = now() + peer_timeout();
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
  Result<StreamChannel> channel = open_channel(address);
  GRADBUS_RETURN_IF_ERROR(channel.status());
  auto stream = std::make_unique<Stream>(channel.take(), link.peer, options_);
  stream->role = Stream::Role::kLink;
  stream->link = &link;
  work_.reserve(++streams_alive_);
  const bool watched = poller_.watch(stream->channel.fd(), stream.get());
  link.streams.push_back(std::move(stream));
  if (watched) return {};
  return system_error("D604", "cannot watch " + link.peer, errno);
}

Result<StreamChannel> TcpTransport::open_channel(const SocketAddress& address) {
  StreamChannel neighbour =
      options_.local_links ? StreamChannel::to_neighbour(address) : StreamChannel();
  if (neighbour.valid()) return neighbour;
  Result<Fd> fd = start_connect(address, options_.peer_timeout_ms, congestion_);
  GRADBUS_RETURN_IF_ERROR(fd.status());
  return StreamChannel(fd.take());
}

// Handles an edge on a stream of a link that is connecting.
void TcpTransport::greet(Stream& stream) {
  TcpLink& link = *stream.link;
  if (!stream.writable || stream.up) return;
  if (!stream.greeted) {
    const int failure = socket_error(stream.channel.fd());
    if (failure != 0) return refuse_connect(link, std::strerror(failure));
    if (!stream.channel.local()) congestion_.settle(stream.channel.fd());
    Greeting greeting = link.greeting;
    while (link.streams[greeting.index].get() != &stream) ++greeting.index;
    if (!stream.channel.send_greeting(greeting)) return refuse_connect(link, "it went away");
    stream.greeted = true;
  }
  if (stream.readable) finish_greeting(stream);
}

void TcpTransport::finish_greeting(Stream& stream) {
  TcpLink& link = *stream.link;
  const IoResult result = stream.channel.read_greeting(stream.greeting);
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
  stream.channel.begin();
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

// ---- acceptor

void TcpTransport::accept_connections() {
  PendingConnections::Streams leaving;
  for (Listener& listener : listeners_) admit_from(listener, leaving);
  retire_all(leaving);
  poller_.start_ticks();
}

void TcpTransport::admit_from(Listener& listener, PendingConnections::Streams& leaving) {
  const int fd_of_listener = listener.fd.get();
  for (int i = 0; i < kPendingConnectionsPerPoll && listener.watched; ++i) {
    Fd fd = listener.local
                ? accept_locally(fd_of_listener)
                : accept_connection(fd_of_listener, options_.peer_timeout_ms, congestion_);
    if (!fd.valid()) {
      if (errno != EMFILE && errno != ENFILE) return;
      // Otherwise the waiting connection wakes the thread again and again.
      poller_.forget(fd_of_listener);
      listener.watched = false;
      return;
    }
    if (listener.local && !is_own(fd.get())) {
      close_elsewhere(std::move(fd));
      continue;
    }
    std::string peer =
        listener.local ? local_peer_of(fd.get()) : format_address(peer_address_of(fd.get()));
    std::string host = listener.local ? "this user" : peer.substr(0, peer.rfind(':'));
    auto stream = std::make_unique<Stream>(StreamChannel(std::move(fd), listener.local),
                                           std::move(peer), options_);
    work_.reserve(++streams_alive_);
    poller_.watch(stream->channel.fd(), stream.get());  // if this fails, the deadline closes it
    pending_connections_.admit(std::move(stream), std::move(host), now() + peer_timeout(), leaving);
  }
}

void TcpTransport::read_pending(Stream& pending) {
  PendingConnections::Streams leaving;
  std::optional<PendingConnections::PendingLink> complete =
      pending_connections_.read_handshake(pending, leaving);
  retire_all(leaving);
  if (complete) accept_complete(std::move(*complete));
}

void TcpTransport::accept_complete(PendingConnections::PendingLink complete) {
  bool answered = !links_.full();
  Greeting answer = complete.greeting;
  answer.answer = true;
  for (uint32_t i = 0; i < complete.streams.size() && answered; ++i) {
    answer.index = i;
    answered = complete.streams[i]->channel.send_greeting(answer);
  }
  if (!answered) return retire_all(complete.streams);
  auto accepted = std::make_unique<TcpLink>();
  accepted->peer = complete.streams.front()->peer;
  accepted->state = TcpLink::State::kUp;
  accepted->streams = std::move(complete.streams);
  TcpLink& link = add_link(std::move(accepted));
  events_of(link).accepted(complete.greeting.hello);
  for (const auto& stream : link.streams) {
    stream->role = Stream::Role::kLink;
    stream->link = &link;
    stream->channel.begin();
    stream->readable = true;
    queue(*stream);
  }
}

// ---- closing

// The peer or the network ended the link.
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

// Closing a socket with unread bytes resets the connection. A reset discards bytes that the peer
// has not read yet, including frames that were reported as sent. So this function half-closes the
// socket and reads on until the peer closes too.
void TcpTransport::part(std::unique_ptr<Stream> stream, bool drain) {
  stream->link = nullptr;
  if (!drain || stream->ended || draining_.size() >= kDrainingMax) return retire(std::move(stream));
  (void)shutdown(stream->channel.fd(), SHUT_WR);
  stream->role = Stream::Role::kDraining;
  stream->readable = true;
  queue(*stream);
  draining_.push_back({std::move(stream), now() + peer_timeout()});
  poller_.start_ticks();
}

void TcpTransport::drain(Stream& stream) {
  std::array<std::byte, kDrainStepBytes> unwanted;
  for (int step = 0; step < kDrainStepsPerTurn; ++step) {
    const ssize_t bytes = recv(stream.channel.fd(), unwanted.data(), unwanted.size(), MSG_DONTWAIT);
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
  poller_.forget(stream->channel.fd());
  stream->channel.close();
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

void TcpTransport::retire_all(PendingConnections::Streams& streams) {
  for (auto& stream : streams) retire(std::move(stream));
  streams.clear();
}

}  // namespace gradbus
