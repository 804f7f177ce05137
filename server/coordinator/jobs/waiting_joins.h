// Ranks that ask for a job's name while another job of that name runs.
//
// Most often it is the same job, started again at once: its former ranks have ended, and an agent's
// word of that, or of their deaths, is still on its way while another agent's word of a new rank
// has come. So such a rank waits for the running job's end, and is refused only when that does not
// come. Part of Coordinator; pure.
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

  // Those that wait no longer, in the order they came: `has_ended(name)`, or their time is up.
  template <typename HasEnded>
  std::vector<Join> take(const HasEnded& has_ended, Nanos now) {
    std::vector<Join> taken;
    std::erase_if(joins_, [&](Join& join) {
      const bool over = now >= join.deadline || has_ended(join.message.job());
      if (over) taken.push_back(std::move(join));
      return over;
    });
    return taken;
  }

 private:
  std::vector<Join> joins_;
};

}  // namespace gradbus
