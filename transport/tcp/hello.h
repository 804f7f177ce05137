// How the connections of one link find each other. Any thread; nothing here blocks.
//
// A link of N streams is N connections. On each connection the opener first sends one kHello frame.
// It is the caller's hello with three values in fields that a hello does not use:
//   step    u64  nonce: random, the same on all connections of one link
//   chunk   u32  bits 0 to 15: index of this connection, below count
//                bits 16 to 30: count, 1 to kStreamsMax
//                bit 31: 0 from the opener, 1 in the answer
// The acceptor waits for all `count` hellos of a nonce, which are equal except for the index. Then
// it answers each with the same frame and bit 31 set, and the link is up on both sides. Nothing
// else is sent before. So an opener detects a frozen peer or another version before its link is up.
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
  FrameHeader hello;  // as the caller passed it to connect()
  uint64_t nonce = 0;
  uint32_t index = 0;
  uint32_t count = 0;
  bool answer = false;
};

uint64_t random_nonce();

// Returns the 64 bytes to send.
FrameHeader pack_greeting(const Greeting& greeting);
// Returns kCorrupt or kVersion when the frame is not a greeting; the message names the field.
Result<Greeting> unpack_greeting(const FrameHeader& frame);

// Whether both belong to one link.
bool same_link(const Greeting& one, const Greeting& other);

// Collects exactly 64 bytes, because frames may follow them.
class GreetingReader {
 public:
  // Returns kMore when frame() is complete.
  IoResult read(int fd);
  // Also stores a file descriptor that comes with the bytes in `passed`.
  IoResult read_with_fd(int fd, Fd& passed);
  const FrameHeader& frame() const { return frame_; }

 private:
  FrameHeader frame_;
  size_t filled_ = 0;
};

}  // namespace gradbus
