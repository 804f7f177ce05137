// Links to shards that ended while the job may continue without the shard. Each waits, with a
// deadline, for the coordinator to report the shard as lost. The coordinator detects that by the
// end of a stream or a lease. One that was started again first waits for the nodes of the job.
//
// Engine thread only.
#pragma once

#include <algorithm>
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
  // The coordinator is gone, or has returned: it reports losses by `at`, or not at all.
  void expect_reports_by(Nanos at) { reports_by_ = at; }
  // Entries are in the order of their ends, which is that of their deadlines. 0: none waits.
  Nanos wake_at() const {
    return links_.empty() ? 0 : std::max(links_.front().deadline, reports_by_);
  }
  Status overdue(Nanos now) const {
    return links_.empty() || now < wake_at() ? Status() : links_.front().why;
  }

 private:
  struct Ended {
    uint32_t peer = 0;
    Status why;
    Nanos deadline = 0;
  };
  std::vector<Ended> links_;
  Nanos reports_by_ = 0;
};

}  // namespace gradbus
