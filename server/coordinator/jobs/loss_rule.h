// The rule behind --loss-percent: a job returns to synchronous exchange when its loss has jumped.
// Pure.
//
// Ranks report losses (gradbus_report_loss), as sums and counts that only grow. A window is about a
// second. Its value is the mean of all losses that any rank reported in it. The rule holds when the
// mean of the last few windows is above a share of the mean of those before them, or when a loss is
// not finite. It holds once, and begins anew after forget().
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <string>

#include "server/coordinator/members/membership.h"

namespace gradbus {

struct LossRuleOptions {
  double share_max = 0;      // of the mean before; 0: the rule is off
  uint32_t windows = 20;     // before
  uint32_t windows_min = 5;  // that there must be, at least
  uint32_t recent = 3;       // that have to be above, together
};

class LossRule {
 public:
  explicit LossRule(const LossRuleOptions& options) : options_(options) {}

  // Any number of times a second. True, once, when the rule holds.
  bool look(const Membership& membership, Nanos now);
  // The job trains in another mode from here on: its loss begins anew.
  void forget();

  // "the loss rose from 1.2 to 3.4", for why it holds.
  const std::string& reason() const { return reason_; }

 private:
  struct Total {
    uint64_t losses = 0;
    uint64_t not_finite = 0;
    double sum = 0;
  };
  static Total total_of(const Membership& membership);
  bool close(const Total& total);
  bool jumped();

  const LossRuleOptions options_;
  Total began_;
  Nanos began_at_ = 0;
  std::deque<double> means_;
  bool applied_ = false;
  std::string reason_;
};

}  // namespace gradbus
