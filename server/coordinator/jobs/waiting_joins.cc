#include "server/coordinator/jobs/waiting_joins.h"

namespace gradbus {

bool WaitingJoins::add(uint64_t agent, const v1::JoinJob& message, Nanos now) {
  if (joins_.size() >= kWaitingJoinsMax) return false;
  joins_.push_back({agent, message, now + kWaitingJoinPatience});
  return true;
}

void WaitingJoins::forget(uint64_t agent) {
  std::erase_if(joins_, [agent](const Join& join) { return join.agent == agent; });
}

bool WaitingJoins::forget(uint64_t agent, const v1::RankLeft& message) {
  return std::erase_if(joins_, [&](const Join& join) {
           return join.agent == agent && join.message.job() == message.job() &&
                  join.message.rank() == message.rank() &&
                  (message.join() == 0 || join.message.join() == message.join());
         }) > 0;
}

}  // namespace gradbus
