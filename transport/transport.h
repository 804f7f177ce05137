// A Transport moves frames between agents and knows no tensor, codec or collective. One role thread
// owns it; nothing here blocks and nothing is thread-safe. A backend is a row of
// transport/registry.h and passes tests/contract/transport_test.cc:
//   * a post that returned kOk completes exactly once, also on disconnect and when the peer dies;
//   * a post that returned kBusy did nothing: poll, then post again;
//   * frames arrive whole or not at all, in any order: a link may be several streams, and a frame
//     names its tensor, round and chunk, so the engine needs no order;
//   * the bytes behind a post belong to the transport until its completion;
//   * a frame whose checksum is wrong ends the link with kCorrupt and is never delivered;
//   * a link that ended yields one kClosed event after all its posts have completed;
//   * a frame that was reported as sent arrives, also after a disconnect, while the peer lives and
//     receives.
//
// A link connects two agents for one job. Jobs do not share links, so a stalled job does not stall
// others.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/status.h"
#include "proto/frame.h"
#include "transport/totals.h"

namespace gradbus {

// Indexes are small and dense. One is used again only long after its kClosed.
struct LinkId {
  uint32_t index = 0;
  bool operator==(const LinkId&) const = default;
};
struct RegionId {
  uint32_t index = 0;
};
struct Slice {
  RegionId region;
  uint64_t offset = 0;
  uint64_t bytes = 0;
};

// A receive buffer contains the 64-byte header, then the payload.
inline constexpr size_t kReceiveSlotBytes = sizeof(FrameHeader) + kFramePayloadBytesMax;

struct TransportEvent {
  enum class Kind : uint8_t {
    kAccepted,   // `link` is new, `hello` is its opener's; nothing is posted on it yet
    kConnected,  // the link opened by connect() is up
    kSent,       // post_send `token` ended with `code`
    kReceived,   // post_receive `token` ended with `code`; `bytes` counts header and payload
    kClosed,     // the link is gone; `code` says why (kClosed: the other side hung up)
  };
  Kind kind = Kind::kClosed;
  Code code = Code::kOk;
  LinkId link{};
  uint64_t token = 0;
  uint64_t bytes = 0;
  FrameHeader hello{};
};

struct TransportOptions {
  std::string bind_address = "127.0.0.1";  // host or host:port; port 0: any free one
  uint32_t streams = 2;                    // connections per link
  uint32_t posts_max = 256;                // sends and receives outstanding per link, each
  uint32_t peer_timeout_ms = 1500;  // TCP_USER_TIMEOUT, and the deadline of connect and hello
  std::string congestion_control = "auto";  // TCP only: auto, system or a name (net/congestion.h)
  // TCP only: shared memory to processes of the same machine (tcp/stream_channel.h).
  bool local_links = true;
  uint32_t queue_pairs = 1;     // RDMA only: per link
  uint32_t return_ms = 10'000;  // several paths: interval of checks for a preferred one; 0: never
  const Clock* clock = &monotonic_clock();
};

class Transport {
 public:
  explicit Transport(const Clock& clock = monotonic_clock()) : clock_(clock) {}
  virtual ~Transport() = default;

  // By the clock of its deadlines. The engine and the jobs that use this transport read it too.
  Nanos now() const { return clock_.now(); }
  const Clock& clock() const { return clock_; }

  // Pins `memory` until unregister_memory. Slow: called when a job or tensor is set up, not in a
  // step.
  virtual Result<RegionId> register_memory(std::span<std::byte> memory) = 0;
  virtual void unregister_memory(RegionId region) = 0;

  // The address that a peer passes to connect(); the control plane carries it.
  virtual std::string local_address() const = 0;
  // Opens a link. `hello` reaches the acceptor; its kind is kHello. The backend uses its fields
  // step and chunk, and with several paths also tensor and operation. kConnected or kClosed
  // follows. Posting may begin at once. A malformed address is GB-F100. Names are not resolved,
  // because that would block.
  virtual Result<LinkId> connect(std::string_view address, const FrameHeader& hello) = 0;

  // Sends `header`, whose length and checksums are filled in here, and the payload. `token` comes
  // back with kSent. kInvalid: a bad slice, or a hello. kClosed: the link has ended, and its
  // kClosed event follows.
  virtual Code post_send(LinkId link, const FrameHeader& header, Slice payload, uint64_t token) = 0;
  // Posts `into` for the next frame of `link` (>= kReceiveSlotBytes unless only credits are
  // expected). A frame that does not fit ends the link with kCorrupt.
  virtual Code post_receive(LinkId link, Slice into, uint64_t token) = 0;
  // Makes progress, fills `events` from the front, and returns their number. Zero is not an error.
  virtual size_t poll(std::span<TransportEvent> events) = 0;
  // All posts complete with kClosed at the next polls; then kClosed follows.
  virtual void disconnect(LinkId link) = 0;

  // Readable (for epoll) when poll() may have something to do, posts included; -1 when the backend
  // must be polled. After a poll that returned 0 it is safe to sleep on it.
  virtual int wait_fd() const = 0;
  // While `expected` is set, poll() is called again at once, whatever it returns. The backend may
  // then skip setting up wake-ups, and it is not safe to sleep on wait_fd().
  virtual void expect_polls(bool /*expected*/) {}
  // The reason why the link failed: one line for the error message; "" if it did not fail.
  virtual std::string link_error(LinkId link) const = 0;

  // Any thread.
  virtual TransportTotals totals() const { return {}; }

 private:
  const Clock& clock_;
};

}  // namespace gradbus
