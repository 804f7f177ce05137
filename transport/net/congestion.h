// Which congestion control the connections of links use. Any thread.
//
// BBR paces by timers and takes seconds to find a link's bandwidth. Gradients come in bursts, both
// ways at once, between machines that are a fraction of a millisecond apart: there it leaves a part
// of a link unused where CUBIC does not (docs/TRANSPORTS.md has the figures), and inside one
// machine it costs twice the CPU: 0.25 s per GB, 0.12 with Reno. Between sites, where packets are
// lost that no queue of ours is to blame for, it is the better one. So where it is the system's
// default, only connections with a long round trip keep it.
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

  // What a connection begins with, and what it goes on with when its round trip takes at least
  // far_from; "": the system's choice. It has to begin with the near one: a connection that was
  // paced once stays so.
  std::string near;
  std::string far;
  Nanos far_from = kFar;

  // `wanted`: auto (above), system (always the system's), or the name of one. GB-F100 when the
  // kernel does not have it, or this user may not use it.
  static Result<CongestionControl> choose(std::string_view wanted);
  // `system` is the kernel's default, `usable` what may be taken instead of BBR, "" if nothing.
  static CongestionControl automatic(std::string_view system, std::string_view usable);

  // Before listen() (accepted connections inherit it) or connect().
  void begin(int fd) const;
  // Once it is connected.
  void settle(int fd) const;
};

// "" when the kernel does not say.
std::string congestion_control_of(int fd);

}  // namespace gradbus
