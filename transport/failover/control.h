// The messages of a control link. A link of several paths has one for each path, in addition to the
// data link of the path. Pure; any thread.
//
// Hello of either link: the caller's hello (transport.h) with
//   tensor    u32  session: random, the same on all paths of one link
//   operation u16  bits 0 to 13: number of the attempt, counted up; a later attempt replaces an
//                  earlier one. 0: a probe of whether this path works: a control link without a
//                  data link, on which the acceptor sends one state
//                  bit 14: the opener has been answered on an earlier attempt
//                  bit 15: this is the control link
//
// Frames of the control link: kind kLinkState, no payload, and
//   tensor    u32  next: every frame of the peer below it was taken
//   job, step, total  u64 each: bit i of these 192 says that frame next + i was taken
//   chunk     u32  Notice
//   operation u16  kGoodbye: the Code that the link ended with
// The first such frame on a path means that its sender is ready for frames on this path.
//
// Frames of the data link carry their sequence number (kSequencedFrame, proto/frame.h), counted
// from 0 in each direction, modulo 2^32. At most kFrameWindow are in flight.
#pragma once

#include <array>
#include <cstdint>

#include "proto/frame.h"

namespace gradbus {

inline constexpr uint32_t kFrameWindow = 1u << 16;

// The frames of the other side that one side has received.
struct TakenFrames {
  static constexpr uint32_t kBits = 192;

  uint32_t next = 0;
  std::array<uint64_t, kBits / 64> beyond{};
};

enum class Notice : uint8_t {
  kState = 0,    // only the state
  kLeaving = 1,  // this path is abandoned; another may follow
  kGoodbye = 2,  // the link ends
};

struct LinkState {
  TakenFrames taken;
  Notice notice = Notice::kState;
  Code code = Code::kOk;
};

FrameHeader pack_link_state(const LinkState& state);
// GB-D601 when the frame is not one.
Result<LinkState> unpack_link_state(const FrameHeader& frame);

struct PathHello {
  uint32_t session = 0;
  uint16_t attempt = 0;
  bool answered = false;
  bool control = false;
};

inline constexpr uint16_t kProbeAttempt = 0;
inline constexpr uint16_t kAttemptsMax = (1u << 14) - 1;

FrameHeader pack_path_hello(const FrameHeader& hello, const PathHello& path);
// Removes the path's part from `hello`, which is then the caller's again.
PathHello unpack_path_hello(FrameHeader& hello);

}  // namespace gradbus
