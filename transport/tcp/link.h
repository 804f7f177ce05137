// The records of the TCP transport: a connection and the link that it belongs to. The transport's
// thread owns them; what they do is in tcp.cc and the files beside it.
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
    kGuest,     // accepted, has not said yet which link it belongs to (lobby.h)
    kLink,      // one of link->streams
    kDraining,  // its link is gone; we wait for the peer to read what was sent
    kRetired,   // closed; freed at the next poll
  };

  Stream(StreamChannel way, std::string peer_address, const TransportOptions& options)
      : channel(std::move(way)),
        peer(std::move(peer_address)),
        user_timeout_ms(options.peer_timeout_ms),
        writer(options.posts_max) {}

  StreamChannel channel;
  std::string peer;  // its address, for messages
  Role role = Role::kGuest;
  TcpLink* link = nullptr;  // role kLink
  // What the edges said last.
  bool readable = false;
  bool writable = false;
  bool hung_up = false;  // nothing new will come; what came before may still be unread
  bool queued = false;   // in the transport's work queue
  bool waits_for_receive = false;
  bool greeted = false;  // link kConnecting: our hello is out
  bool up = false;       // both hellos are through
  bool ended = false;    // read to its end
  uint32_t user_timeout_ms;
  Nanos blocked_since = 0;  // the channel has taken nothing since; 0: it takes what there is
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
  // Posted, and the event that ends the post not yet handed to the caller.
  uint32_t sends = 0;
  uint32_t receives_outstanding = 0;
  uint32_t streams_up = 0;
  uint32_t streams_ended = 0;
  uint32_t next_stream = 0;
  bool ending = false;  // a stream ended: nothing more is sent, what came is still delivered
  Status broken;        // why, when it was not an orderly end
  Nanos deadline = 0;   // of kConnecting, or of the ending
};

// Something can be done for this stream of a link without waiting for the kernel.
bool has_work(const Stream& stream);

// Where the next frame of `bytes` goes: the stream with the fewest queued bytes.
Stream& choose_stream(TcpLink& link, size_t bytes);

}  // namespace gradbus
