// A Transport that misbehaves as its plan says, around one that does not. For tests and
// simulations.
//
// What it does is what a network or a slow peer could do, so the contract of transport.h still
// holds above it: every post ends once, and a link that cannot go on ends with a named error.
// Frames are never lost or doubled in silence, because no backend may do that. One seed gives one
// course of events, as long as the inner transport gives the same events to the same polls. One
// thread owns it.
#pragma once

#include <cstdint>
#include <memory>

#include "transport/transport.h"

namespace gradbus {

// Chances are from 0 (never) to 1 (always).
struct FaultPlan {
  uint64_t seed = 1;
  double busy = 0;   // of a post: refused with kBusy
  double delay = 0;  // of an event: handed out only after 1 to delay_polls_max more polls
  uint32_t delay_polls_max = 16;
  bool reorder = false;  // a delayed event does not hold up those behind it
  double corrupt = 0;    // of a received frame: one bit flips, and the checksum must find it
  double drop_link = 0;  // of a received frame: the link breaks before it, as kPeerLost
};

std::unique_ptr<Transport> make_faulty(std::unique_ptr<Transport> inner, const FaultPlan& plan);

}  // namespace gradbus
