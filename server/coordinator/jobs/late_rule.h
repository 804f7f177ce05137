// The rule behind --late-mode: a job changes its mode when its ranks lose too much of their time to
// a late rank. Pure.
//
// A window is about a second. A rank's share of it is the part in which it was blocked by others.
// The latest rank waits least, so the window's lateness is the largest share minus the smallest.
// All shares contain the cost of the network, so it cancels out. The rule holds when the mean
// lateness of the last windows is above a bound. The rule uses a mean, because with a quantile of
// windows one checkpoint that rank 0 writes would look like a straggler. It compares ranks within
// windows, because ranks that are late in turn have equal shares in the long run.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "common/clock.h"
#include "server/coordinator/members/membership.h"

namespace gradbus {

struct LateRuleOptions {
  std::string mode;        // what is asked for; "": the rule is off
  double share_max = 0.2;  // of their time that ranks may lose
  uint32_t windows = 60;
};

class LateRule {
 public:
  explicit LateRule(const LateRuleOptions& options) : options_(options) {}

  // Of the ranks that are there; any number of times a second. True, once, when the rule holds.
  bool look(const Membership& membership);

  double lateness() const;       // the mean over the windows there are
  uint32_t latest_rank() const;  // that has waited least in them

 private:
  struct Count {
    Nanos at = 0;
    uint64_t wait_ns = 0;
  };
  struct Window {
    double lateness = 0;
    std::map<uint32_t, double> shares;  // by rank
  };
  bool is_over(const Membership& membership) const;
  void close(const Membership& membership);

  const LateRuleOptions options_;
  std::map<uint32_t, Count> began_;  // by rank: of the open window
  std::deque<Window> windows_;
  bool applied_ = false;
};

}  // namespace gradbus
