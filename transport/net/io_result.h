// The result of one attempt to read or write a connection.
#pragma once

#include <cstdint>

#include "common/status.h"

namespace gradbus {

enum class Io : uint8_t {
  kMore,       // moved something and may move more at once
  kShort,      // moved less than requested: the socket is empty, but an end may follow
  kBlocked,    // the kernel has no bytes, or no room; an edge will follow
  kNoReceive,  // a frame waits and no receive is posted for it
  kEnded,      // the other side closed, between two frames
  kFailed,     // see `status`
};

struct IoResult {
  Io io = Io::kMore;
  Status status;  // kCorrupt or kVersion: the bytes are wrong; kPeerLost: the connection broke
};

IoResult io_failed(Status status);
// kBlocked for EAGAIN, else kFailed with the text of `failure`, an errno.
IoResult io_errno(int failure);

}  // namespace gradbus
