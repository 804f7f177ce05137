// How the connections of one link find each other. Any thread; nothing here blocks.
//
// A link of N streams is N connections. On each the opener first sends one kHello frame: the
// caller's hello with three things in fields that a hello leaves free:
//   step    u64  nonce: random, the same on all connections of one link
//   chunk   u32  bits 0 to 15: index of this connection, below count
//                bits 16 to 30: count, 1 to kStreamsMax
//                bit 31: 0 from the opener, 1 in the answer
// When the acceptor has all `count` hellos of a nonce, equal but for the index, it answers each
// with the same frame and bit 31 set, and the link is up on both sides. Nothing else is sent
// before: an opener whose peer is frozen, or speaks another version, learns it before its link
// counts as up.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "common/fd.h"
#include "common/status.h"
#include "proto/frame.h"
#include "transport/net/io_result.h"
#include "transport/options.h"

namespace gradbus {

struct Greeting {
  FrameHeader hello;  // as the caller gave it to connect()
  uint64_t nonce = 0;
  uint32_t index = 0;
  uint32_t count = 0;
  bool answer = false;
};

uint64_t random_nonce();

// The 64 bytes to send.
FrameHeader pack_greeting(const Greeting& greeting);
// kCorrupt or kVersion when the frame is not a greeting; the message names the field.
Result<Greeting> unpack_greeting(const FrameHeader& frame);

// They belong to one link.
bool same_link(const Greeting& one, const Greeting& other);

// Collects the 64 bytes and not one more: frames may follow them.
class GreetingReader {
 public:
  // kMore: frame() is whole.
  IoResult read(int fd);
  // A descriptor that comes with them is put into `passed`.
  IoResult read_with_fd(int fd, Fd& passed);
  const FrameHeader& frame() const { return frame_; }

 private:
  FrameHeader frame_;
  size_t filled_ = 0;
};

}  // namespace gradbus
