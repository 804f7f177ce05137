#include "transport/failover/control.h"

#include <string>
#include <utility>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint16_t kAnsweredBit = 1u << 14;
constexpr uint16_t kControlBit = 1u << 15;
static_assert(kAttemptsMax < kAnsweredBit);

}  // namespace

FrameHeader pack_link_state(const LinkState& state) {
  FrameHeader frame;
  frame.kind = static_cast<uint8_t>(FrameKind::kLinkState);
  frame.tensor = state.taken.next;
  frame.job = state.taken.beyond[0];
  frame.step = state.taken.beyond[1];
  frame.total = state.taken.beyond[2];
  frame.chunk = static_cast<uint32_t>(state.notice);
  frame.operation = static_cast<uint16_t>(state.code);
  return frame;
}

Result<LinkState> unpack_link_state(const FrameHeader& frame) {
  if (frame.kind != static_cast<uint8_t>(FrameKind::kLinkState) || frame.length != 0)
    return error("D601", "frame field kind is " + std::to_string(frame.kind) +
                             ", but a control link carries the states of its link");
  if (frame.chunk > static_cast<uint32_t>(Notice::kGoodbye))
    return error("D601", "frame field chunk of a link's state is " + std::to_string(frame.chunk));
  LinkState state;
  state.taken = {frame.tensor, {frame.job, frame.step, frame.total}};
  state.notice = static_cast<Notice>(frame.chunk);
  state.code = static_cast<Code>(frame.operation);
  return state;
}

FrameHeader pack_path_hello(const FrameHeader& hello, const PathHello& path) {
  FrameHeader packed = hello;
  packed.tensor = path.session;
  packed.operation = static_cast<uint16_t>(path.attempt | (path.answered ? kAnsweredBit : 0) |
                                           (path.control ? kControlBit : 0));
  return packed;
}

PathHello unpack_path_hello(FrameHeader& hello) {
  const uint16_t packed = std::exchange(hello.operation, uint16_t{0});
  return {std::exchange(hello.tensor, 0), static_cast<uint16_t>(packed & kAttemptsMax),
          (packed & kAnsweredBit) != 0, (packed & kControlBit) != 0};
}

}  // namespace gradbus
