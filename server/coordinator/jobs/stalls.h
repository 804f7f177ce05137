// Finds which ranks of a job wait for which others, and whether these waits can end.
//
// Part of CoordinatorJob; pure. A rank that waits reports it every second. For a registration
// (round 0), this class knows the missing ranks. For a round it asks the agents. The result is a
// message for the waiting ranks and, if no wait can end, a verdict.
//
// A verdict ends a job, so it needs proof. The answer of an agent counts against a rank only if it
// was requested after that rank began to wait, or left. A wait that is not reported again is
// removed. A rank whose other threads may still begin operations waits in the background: that
// never shows that all ranks are blocked.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/coordinator/jobs/registrations.h"
#include "server/coordinator/members/membership.h"

namespace gradbus {

class Stalls {
 public:
  enum class Due : uint8_t { kNothing, kNotice, kQuery };
  struct Verdict {
    Status error;
    std::vector<std::string> refused_names;  // empty: the whole job fails
  };

  // Both outlive this object. It is a deadlock when all ranks have waited for `deadlock`.
  Stalls(const Membership* membership, const Registrations* registrations, Nanos deadlock)
      : membership_(membership), registrations_(registrations), deadlock_(deadlock) {}

  // What to send now: a notice, a query to all agents, or nothing because it was just done.
  Due blocked(const v1::RankBlocked& message, Nanos now);
  // The rank does something else, or has left.
  void forget(uint32_t rank);
  // The tensor has retired: a wait for one of its rounds has ended, and its rank will say so. So a
  // wait for a round is always one for a tensor that is ready.
  void forget_rounds(const std::string& tensor);
  // true: all agents have answered, a notice is due.
  bool report(uint64_t agent, const v1::ProgressReport& message);

  // Call about ten times a second; cheap when nothing has changed.
  std::optional<Verdict> judge(Nanos now);

  // `rank 3 (node-b) has not started "layer3.w" round 812; waiting: ranks 0, 1 for 10.0 s`
  std::string sentence(const std::string& tensor, uint64_t round, Nanos now) const;

 private:
  using Key = std::pair<std::string, uint64_t>;  // tensor, round
  struct Waiter {
    uint32_t rank = 0;
    bool background = false;
    auto operator<=>(const Waiter&) const = default;
  };
  struct Wait {
    Key key;
    Nanos since = 0;
    Nanos heard = 0;
  };
  struct Inquiry {
    Nanos asked_at = 0;
    std::set<uint64_t> unanswered;  // agents
    RankSet missing;
  };
  struct Group {
    RankSet waiting;
    Nanos longest = 0;
    std::optional<RankSet> needed;  // none: not known yet
    Nanos asked_at = 0;
  };
  using Groups = std::map<Key, Group>;

  bool fresh(const Waiter& waiter, const Wait& wait, Nanos now) const;
  void forget_unused_inquiries();
  void begin_inquiry(Inquiry& inquiry, bool of_agents, Nanos now);
  Groups groups(Nanos now) const;
  void fill_needed(const Key& key, Group& group) const;
  bool begun_before(uint32_t rank, const Key& key, Nanos when) const;
  std::optional<Verdict> left_behind(const Groups& groups) const;
  std::optional<Verdict> moved_on(const Groups& groups) const;
  std::optional<Verdict> deadlocked(const Groups& groups, Nanos now) const;
  bool all_wait_long_enough(const Groups& groups, Nanos now) const;
  RankSet blocked_ranks(Nanos now) const;
  Nanos steady_since() const;
  std::string elsewhere(const RankSet& waiting) const;

  const Membership* membership_;
  const Registrations* registrations_;
  Nanos deadlock_;
  bool changed_ = false;
  std::map<Waiter, Wait> waits_;  // the last ones that were reported
  std::map<Key, Inquiry> inquiries_;
};

}  // namespace gradbus
