// The records of the TCP transport: a connection and its link. The transport's thread owns them.
// Their behaviour is in tcp.cc and the files next to it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/clock.h"
#include "transport/bounded_queue.h"
#include "transport/tcp/frame_reader.h"
#include "transport/tcp/frame_writer.h"
#include "transport/tcp/hello.h"
#include "transport/tcp/stream_channel.h"
#include "transport/transport.h"

namespace gradbus {

struct TcpLink;

struct Stream {
  enum class Role : uint8_t {
    kPending,   // accepted; its link is not known yet (pending_connections.h)
    kLink,      // one of link->streams
    kDraining,  // its link is gone; the peer still reads what was sent
    kRetired,   // closed; freed at the next poll
  };

  Stream(StreamChannel way, std::string peer_address, const TransportOptions& options)
      : channel(std::move(way)),
        peer(std::move(peer_address)),
        user_timeout_ms(options.peer_timeout_ms),
        writer(options.posts_max) {}

  StreamChannel channel;
  std::string peer;  // address, for messages
  Role role = Role::kPending;
  TcpLink* link = nullptr;  // in role kLink
  // State reported by the latest edges.
  bool readable = false;
  bool writable = false;
  bool hung_up = false;  // no new bytes will come; earlier ones may still be unread
  bool queued = false;   // in the transport's work queue
  bool waits_for_receive = false;
  bool greeted = false;  // link kConnecting: our hello was sent
  bool up = false;       // both hellos were exchanged
  bool ended = false;    // read to its end
  uint32_t user_timeout_ms;
  Nanos blocked_since = 0;  // the channel has accepted nothing since then; 0: not blocked
  GreetingReader greeting;
  FrameReader reader;
  FrameWriter writer;
};

struct TcpLink {
  enum class State : uint8_t { kConnecting, kUp, kClosed };

  LinkId id;
  State state = State::kConnecting;
  std::string peer;
  Greeting greeting;
  std::vector<std::unique_ptr<Stream>> streams;
  BoundedQueue<Incoming> receives;
  // Posts whose final event was not yet delivered to the caller.
  uint32_t sends = 0;
  uint32_t receives_outstanding = 0;
  uint32_t streams_up = 0;
  uint32_t streams_ended = 0;
  uint32_t next_stream = 0;
  bool ending = false;  // a stream ended: nothing more is sent, received frames are still delivered
  Status broken;        // the reason, if the end was not orderly
  Nanos deadline = 0;   // of kConnecting or of the ending
};

// Whether this stream of a link can make progress without waiting for the kernel.
bool has_work(const Stream& stream);

// Returns the stream for the next frame of `bytes`: the one with the fewest queued bytes.
Stream& choose_stream(TcpLink& link, size_t bytes);

}  // namespace gradbus
