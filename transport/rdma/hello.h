// How the queue pairs of a link find each other, over one TCP connection per link. Any thread may
// call this; nothing here blocks.
//
//   opener                            acceptor
//   kHello frame, cards      ->                      makes its queue pairs, ready to receive
//                            <-      kHello frame, cards, bit 31 of chunk set
//   ready to send: 1 byte 0  ->                       ready to send; the link is up on both sides
//   ... frames by RDMA ...
//   farewell: 1 byte, the Code        either side ends the link in order
//
// The frame is the caller's hello. Its `step` is 0, and its `chunk` is 0 except for bit 31. Its
// payload is the cards, which its checksum covers. The acceptor sends nothing by RDMA before it has
// received the 0 byte: the opener could not receive it yet, and lost packets cost retries.
//
// The card, 32 bytes, little-endian:
//   offset  0  u32     queue_pair  24 bits
//   offset  4  u32     first_psn   24 bits; of the packets that this side sends
//   offset  8  u16     lid         InfiniBand; 0 on Ethernet
//   offset 10  u8      mtu         1 to 5: 256 to 4096 bytes; the smaller of the two is used
//   offset 11  u8      ethernet    1 for RoCE; both sides must be the same
//   offset 12  u8      more        further queue pairs of the link. The answer has at most as many
//                                  as the hello, and the answer's number is used
//   offset 13  u8[3]   0
//   offset 16  u8[16]  gid
//
// The card is followed by 8 bytes for each of `more`: u32 queue_pair, u32 first_psn.
//
// The connection stays open for the life of the link and carries nothing more. If it ends without a
// farewell, the peer's process is gone. The kernel's probes detect that its machine is gone
// (peer_timeout_ms).
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "common/status.h"
#include "proto/frame.h"

namespace gradbus {

struct QueuePairCard {
  uint32_t queue_pair = 0;
  uint32_t first_psn = 0;
  uint16_t lid = 0;
  uint8_t mtu = 0;
  uint8_t ethernet = 0;
  uint8_t more = 0;
  std::array<uint8_t, 3> unused{};
  std::array<uint8_t, 16> gid{};
};
static_assert(sizeof(QueuePairCard) == 32, "the card, version 1");

inline constexpr uint32_t kQueuePairsMax = 16;  // per link

struct RdmaHello {
  static constexpr size_t kBytesMin = 96;  // up to the end of the card, which contains `more`

  struct Other {
    uint32_t queue_pair = 0;
    uint32_t first_psn = 0;
  };
  FrameHeader frame;
  QueuePairCard card;
  std::array<Other, kQueuePairsMax - 1> others;

  size_t pairs() const { return 1 + std::min(size_t{card.more}, others.size()); }
  // The bytes to send or receive. The card has their number, so it must be filled in before.
  std::span<std::byte> bytes() {
    return std::as_writable_bytes(std::span(this, 1))
        .first(kBytesMin + (pairs() - 1) * sizeof(Other));
  }
  // The card of queue pair `index` of the link.
  QueuePairCard card_of(size_t index) const;
};
static_assert(sizeof(RdmaHello) == RdmaHello::kBytesMin + 8 * (kQueuePairsMax - 1), "no padding");

inline constexpr uint8_t kReadyByte = 0;

// Returns the message for 1 to kQueuePairsMax queue pairs, all on one port.
RdmaHello pack_hello(const FrameHeader& hello, std::span<const QueuePairCard> cards, bool answer);

// Returns kCorrupt or kVersion, naming the field, unless `message` is a hello (or an answer) with
// usable cards. Restores the frame that the caller gave to connect().
Status check_hello(RdmaHello& message, bool answer);

}  // namespace gradbus
