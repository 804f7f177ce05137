// Links to shards that ended although the job may go on without the shard: each waits for the
// coordinator's word that the shard is lost, with a deadline. The coordinator knows by the end of a
// stream or of a lease.
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
  // `why`: what it means when no word comes.
  void add(uint32_t peer, const Status& why, Nanos now) {
    links_.push_back({peer, why, now + kShardLossDeadline});
  }
  void forget(uint32_t peer) {
    std::erase_if(links_, [peer](const Ended& link) { return link.peer == peer; });
  }
  // In the order of their ends, which is that of their deadlines. 0: none waits.
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
