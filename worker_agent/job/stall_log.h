// When a stall is logged: after 1, 2, 5, 10 and 30 s, then every minute. Conductor thread only.
//
// Notices arrive every second while a rank waits. The log is per job, tensor and round, because
// several stalls may exist at once.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <tuple>

#include "common/clock.h"

namespace gradbus {

class StallLog {
 public:
  // Whether the current notice is logged.
  bool due(uint64_t job, const std::string& tensor, uint64_t round, Nanos now) {
    std::erase_if(stalls_,
                  [now](const auto& entry) { return now - entry.second.heard > kEndedAfter; });
    if (stalls_.size() >= kStallsMax) stalls_.clear();
    Stall& stall = stalls_[{job, tensor, round}];
    if (stall.heard == 0) stall.began = now - kFirst;
    stall.heard = now;
    if (now - stall.began < stall.next) return false;
    stall.next = after(now - stall.began);
    return true;
  }

 private:
  // How long a rank has waited at its first notice.
  static constexpr Nanos kFirst = kSecond;
  static constexpr Nanos kEndedAfter = 5 * kSecond;  // time without a notice
  static constexpr size_t kStallsMax = 256;
  struct Stall {
    Nanos began = 0;
    Nanos heard = 0;
    Nanos next = 0;  // waiting time of the next log line
  };

  // A notice may come a little early.
  static Nanos after(Nanos waited) {
    for (const int64_t seconds : {2, 5, 10, 30})
      if (waited < seconds * kSecond - kSecond / 2) return seconds * kSecond - kSecond / 2;
    return (waited / (60 * kSecond) + 1) * 60 * kSecond;
  }

  std::map<std::tuple<uint64_t, std::string, uint64_t>, Stall> stalls_;
};

}  // namespace gradbus
