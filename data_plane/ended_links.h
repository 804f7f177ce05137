// Links to shards that ended while the job may continue without the shard. Each waits, with a
// deadline, for the coordinator to report the shard as lost. The coordinator detects that by the
// end of a stream or a lease.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <vector>

#include "common/clock.h"
#include "common/status.h"

namespace gradbus {

inline constexpr Nanos kShardLossDeadline = 5 * kSecond;

class EndedLinks {
 public:
  // `why` is the error if no report arrives.
  void add(uint32_t peer, const Status& why, Nanos now) {
    links_.push_back({peer, why, now + kShardLossDeadline});
  }
  void forget(uint32_t peer) {
    std::erase_if(links_, [peer](const Ended& link) { return link.peer == peer; });
  }
  // Entries are in the order of their ends, which is that of their deadlines. 0: none waits.
  Nanos wake_at() const { return links_.empty() ? 0 : links_.front().deadline; }
  Status overdue(Nanos now) const {
    return links_.empty() || now < links_.front().deadline ? Status() : links_.front().why;
  }

 private:
  struct Ended {
    uint32_t peer = 0;
    Status why;
    Nanos deadline = 0;
  };
  std::vector<Ended> links_;
};

}  // namespace gradbus
