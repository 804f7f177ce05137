// Reads and writes one stream of a link that is up. Part of TcpTransport (tcp.h).
#include <algorithm>
#include <cstring>

#include "transport/net/socket.h"
#include "transport/tcp/tcp.h"

namespace gradbus {
namespace {

// Turns are short, so that no stream waits long. A frame takes up to three reading steps of at most
// one frame's bytes; a writing step is one batch.
constexpr int kReadStepsPerTurn = 32;
constexpr int kWriteStepsPerTurn = 4;

}  // namespace

void TcpTransport::read_frames(Stream& stream) {
  if (stream.ended || stream.waits_for_receive) return;
  TcpLink& link = *stream.link;
  for (int step = 0; step < kReadStepsPerTurn; ++step) {
    if (!stream.readable && !stream.reader.step_is_buffered()) return;
    const IoResult result = stream.reader.read(stream.channel, link.receives, events_of(link));
    copied_twice_bytes_.add(stream.reader.take_copied_bytes());
    if (!after_read(stream, result)) return;
  }
}

// Returns whether another step makes sense in this turn.
bool TcpTransport::after_read(Stream& stream, const IoResult& result) {
  TcpLink& link = *stream.link;
  switch (result.io) {
    case Io::kMore:
      // The link still delivers frames.
      if (link.ending) link.deadline = std::max(link.deadline, now() + broken_grace());
      return true;
    case Io::kShort: stream.readable = stream.hung_up; return true;
    case Io::kBlocked: stream.readable = false; return true;
    case Io::kNoReceive: stream.waits_for_receive = true; return false;
    case Io::kEnded: stream_over(stream, {}); return false;
    case Io::kFailed: break;
  }
  if (result.status.code() == Code::kPeerLost) {
    stream_over(stream, result.status);
  } else {
    end_link(link, result.status.code(), result.status.with_context(stream.peer).message());
  }
  return false;
}

void TcpTransport::write_frames(Stream& stream) {
  TcpLink& link = *stream.link;
  for (int step = 0; step < kWriteStepsPerTurn; ++step) {
    if (!stream.writable || stream.writer.empty() || link.ending) return;
    const uint64_t queued = stream.writer.queued_bytes();
    const IoResult result = stream.writer.write(stream.channel, events_of(link));
    if (result.io == Io::kMore || stream.writer.queued_bytes() < queued) stream.blocked_since = 0;
    if (result.io == Io::kMore) continue;
    stream.writable = false;
    if (result.io == Io::kBlocked) {
      if (stream.blocked_since == 0) stream.blocked_since = now();
      return poller_.start_ticks();
    }
    // The link is broken, but earlier frames may still be unread. Reading on finds the end.
    if (link.broken.ok()) link.broken = result.status;
    stream.readable = stream.hung_up = true;
    begin_ending(link, broken_grace());
  }
}

void TcpTransport::stream_over(Stream& stream, Status broken) {
  TcpLink& link = *stream.link;
  stream.ended = true;
  ++link.streams_ended;
  const Nanos grace = broken.ok() ? orderly_grace() : broken_grace();
  if (link.broken.ok()) link.broken = std::move(broken);
  begin_ending(link, grace);
  if (link.streams_ended == link.streams.size()) lose_link(link);
}

// An edge reports that no new bytes will arrive.
void TcpTransport::note_end(Stream& stream, uint32_t edges) {
  TcpLink& link = *stream.link;
  if (link.state != TcpLink::State::kUp) return;  // the greeting finds the reason
  const bool reset = (edges & EPOLLERR) != 0;
  const int failure = reset ? socket_error(stream.channel.fd()) : 0;
  if (failure != 0 && link.broken.ok())
    link.broken = Status(Code::kPeerLost, std::strerror(failure));
  begin_ending(link, reset ? broken_grace() : orderly_grace());
}

// A side closes all its streams at once, so the other streams of this link end soon too. Their
// unread frames are delivered first. The grace period is for streams that never end, and for frames
// without a posted receive. It is short enough to report a dead peer within two seconds.
void TcpTransport::begin_ending(TcpLink& link, Nanos grace) {
  const Nanos deadline = now() + grace;
  link.deadline = link.ending ? std::min(link.deadline, deadline) : deadline;
  link.ending = true;
  poller_.start_ticks();
}

}  // namespace gradbus
