// Handles deadlines. Part of TcpTransport (tcp.h). Ticks run only while something has a deadline,
// and only after received bytes were read: a process that was not scheduled for a while must not
// take its own pause for a silent peer.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "common/errors.h"
#include "transport/net/socket.h"
#include "transport/tcp/tcp.h"

namespace gradbus {
namespace {

// TCP_USER_TIMEOUT also ends a connection whose peer answers every probe but keeps its window
// closed: after 2.0 s with 1500 ms, measured on Linux 6.18. A closed window is allowed
// back-pressure, so a peer that answers gets this many times longer. A frozen peer still ends.
constexpr uint32_t kStallFactor = 20;

// The stream has frames that the kernel does not accept.
bool is_blocked(const Stream& stream) { return !stream.writable && !stream.writer.empty(); }

void watch_window(Stream& stream, uint32_t peer_timeout_ms) {
  const bool stalled = is_blocked(stream) && peer_window_is_closed(stream.channel.fd());
  const uint32_t timeout_ms = stalled ? peer_timeout_ms * kStallFactor : peer_timeout_ms;
  if (timeout_ms != stream.user_timeout_ms) set_user_timeout(stream.channel.fd(), timeout_ms);
  stream.user_timeout_ms = timeout_ms;
}

}  // namespace

void TcpTransport::tick() {
  tick_due_ = false;
  poller_.end_tick();
  const Nanos now = this->now();
  PendingConnections::Streams leaving;
  pending_connections_.expire(now, leaving);
  for (Draining& one : draining_) {
    if (one.deadline <= now) leaving.push_back(std::move(one.stream));
  }
  std::erase_if(draining_, [](const Draining& one) { return one.stream == nullptr; });
  retire_all(leaving);
  bool needed = !pending_connections_.empty() || !draining_.empty();
  links_.for_each([&](TcpLink& link) { needed |= tick_link(link, now); });
  for (Listener& one : listeners_) {
    if (!one.watched) one.watched = poller_.watch_listener(one.fd.get());
    needed |= !one.watched;
  }
  if (!needed && draining_.empty()) poller_.stop_ticks();
}

// Returns whether the link still has a deadline.
bool TcpTransport::tick_link(TcpLink& link, Nanos now) {
  if (link.state == TcpLink::State::kClosed) return false;
  if (link.state == TcpLink::State::kConnecting) {
    if (now < link.deadline) return true;
    refuse_connect(link, "no answer within " + std::to_string(options_.peer_timeout_ms) + " ms");
    return false;
  }
  const auto reads_on = [](const auto& stream) { return has_work(*stream); };
  if (link.ending && now >= link.deadline &&
      std::none_of(link.streams.begin(), link.streams.end(), reads_on)) {
    lose_link(link);
    return false;
  }
  bool blocked = false;
  for (const auto& stream : link.streams) {
    blocked |= is_blocked(*stream);
    if (!stream->channel.local()) {
      watch_window(*stream, options_.peer_timeout_ms);
    } else if (is_blocked(*stream) &&
               now - stream->blocked_since >= peer_timeout() * kStallFactor) {
      // The kernel does this for TCP. Nothing else watches a local peer.
      link.broken = Status(Code::kPeerLost, std::strerror(ETIMEDOUT));
      lose_link(link);
      return false;
    }
  }
  return blocked || link.ending;
}

}  // namespace gradbus
