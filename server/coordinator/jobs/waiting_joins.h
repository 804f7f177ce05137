// Ranks that ask for a job's name while another job of that name runs, or starts and has their
// number.
//
// Usually the same job was restarted at once. The coordinator gets the Join of a new rank from one
// agent before another agent reports that the old ranks have ended. So the new rank waits up to
// kWaitingJoinPatience for that report, and is then refused. Part of Coordinator; pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "common/clock.h"
#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

inline constexpr Nanos kWaitingJoinPatience = 3 * kSecond;
inline constexpr size_t kWaitingJoinsMax = 4096;

class WaitingJoins {
 public:
  struct Join {
    uint64_t agent = 0;
    v1::JoinJob message;
    Nanos deadline = 0;
  };

  bool empty() const { return joins_.empty(); }

  // False: too many wait already.
  bool add(uint64_t agent, const v1::JoinJob& message, Nanos now);

  // An agent has gone, or one of its ranks before it was answered. False: it did not wait.
  void forget(uint64_t agent);
  bool forget(uint64_t agent, const v1::RankLeft& message);

  // Those that wait no longer, in the order they came: `may_join(message)`, or their time is up.
  template <typename MayJoin>
  std::vector<Join> take(const MayJoin& may_join, Nanos now) {
    std::vector<Join> taken;
    std::erase_if(joins_, [&](Join& join) {
      const bool over = now >= join.deadline || may_join(join.message);
      if (over) taken.push_back(std::move(join));
      return over;
    });
    return taken;
  }

 private:
  std::vector<Join> joins_;
};

}  // namespace gradbus
