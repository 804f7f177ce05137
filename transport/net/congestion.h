// The congestion control of link connections. Any thread.
//
// BBR paces with timers and needs seconds to find a link's bandwidth. Gradients come in bursts, in
// both directions at once, between machines that are a fraction of a millisecond apart. There BBR
// leaves a part of a link unused, and CUBIC does not (docs/how-to/tune-tcp.md has the figures).
// Inside one machine it costs twice the CPU: 0.25 s per GB, 0.12 with Reno. Between sites, where
// packets are lost without a queue of ours, BBR is better. So where it is the system's default,
// only connections with a long round trip keep it.
#pragma once

#include <string>
#include <string_view>

#include "common/clock.h"
#include "common/status.h"

namespace gradbus {

struct CongestionControl {
  static constexpr std::string_view kAuto = "auto";
  static constexpr std::string_view kSystem = "system";
  static constexpr Nanos kFar = 5 * kMillisecond;

  // The congestion control at the start of a connection, and the one it uses when its round trip
  // takes at least far_from; "" is the system's choice. A connection must start with the near one,
  // because a connection that was paced once stays paced.
  std::string near;
  std::string far;
  Nanos far_from = kFar;

  // `wanted`: auto (above), system (always the system's), or a name. GB-F100 when the kernel does
  // not have it, or this user may not use it.
  static Result<CongestionControl> choose(std::string_view wanted);
  // `system` is the kernel's default. `usable` may replace BBR; "" if nothing may.
  static CongestionControl automatic(std::string_view system, std::string_view usable);

  // Call it before listen() (accepted connections inherit it) or connect().
  void begin(int fd) const;
  // Call it once the socket is connected.
  void settle(int fd) const;
};

// Returns "" when the kernel does not report it.
std::string congestion_control_of(int fd);

}  // namespace gradbus
