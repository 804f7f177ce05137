#include "common/metrics/job_pages.h"

#include <utility>

namespace gradbus {

const std::string& JobPages::label(uint64_t job, const std::string& name) {
  const auto known = labels_.find(job);
  if (known != labels_.end()) return known->second;
  return labels_[job] = labels_.size() < kJobsLabelledMax ? name : kOtherLabel;
}

void JobPages::renew(std::map<uint64_t, MetricPage> live, Nanos now) {
  for (auto& [job, page] : live_) {
    if (live.contains(job)) continue;
    page.drop_gauges();
    ended_[job] = {std::move(page), now + kEndedJobShown};
  }
  live_ = std::move(live);
  std::erase_if(ended_, [&](const auto& entry) { return now >= entry.second.until; });
  while (ended_.size() > kJobsLabelledMax) ended_.erase(ended_.begin());
  std::erase_if(labels_, [&](const auto& entry) {
    return !live_.contains(entry.first) && !ended_.contains(entry.first);
  });
}

void JobPages::add_to(MetricPage& page) const {
  for (const auto& [job, of] : live_) page.merge(of);
  for (const auto& [job, of] : ended_) page.merge(of.page);
}

}  // namespace gradbus
