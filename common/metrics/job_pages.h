// The pages of a daemon's jobs. At most kJobsLabelledMax jobs have a label of their own at a time.
// The counters of an ended job stay for a while, so that a scrape after its end sees them. One
// thread.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "common/clock.h"
#include "common/metrics/metric_page.h"

namespace gradbus {

inline constexpr Nanos kEndedJobShown = 300 * kSecond;

class JobPages {
 public:
  // The label of a live job; kOtherLabel when too many have one.
  const std::string& label(uint64_t job, const std::string& name);
  // The pages of all live jobs. Those that are missing have ended.
  void renew(std::map<uint64_t, MetricPage> live, Nanos now);
  void add_to(MetricPage& page) const;

 private:
  struct Ended {
    MetricPage page;
    Nanos until = 0;
  };
  std::map<uint64_t, std::string> labels_;  // of live and ended jobs
  std::map<uint64_t, MetricPage> live_;
  std::map<uint64_t, Ended> ended_;
};

}  // namespace gradbus
