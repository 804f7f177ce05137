// The newest page of the thread that owns the figures of jobs, for those who scrape. Neither waits
// for the other longer than for a pointer. Any thread.
#pragma once

#include <memory>
#include <mutex>
#include <utility>

#include "common/clock.h"
#include "common/metrics/metric_page.h"

namespace gradbus {

inline constexpr Nanos kMetricsEvery = kSecond;  // how often the owner publishes

class MetricsBoard {
 public:
  void publish(MetricPage page, Nanos now) {
    auto newest = std::make_shared<const MetricPage>(std::move(page));
    const std::lock_guard lock(lock_);
    page_.swap(newest);
    published_ = now;
  }
  // Adds the newest page and its age.
  void add_to(MetricPage& page, Nanos now) const {
    const auto [newest, published] = latest();
    if (newest == nullptr) return;
    page.merge(*newest);
    page.add(Metric::kMetricsAge, static_cast<double>(now - published) * 1e-9);
  }

 private:
  std::pair<std::shared_ptr<const MetricPage>, Nanos> latest() const {
    const std::lock_guard lock(lock_);
    return {page_, published_};
  }

  mutable std::mutex lock_;
  std::shared_ptr<const MetricPage> page_;
  Nanos published_ = 0;
};

}  // namespace gradbus
