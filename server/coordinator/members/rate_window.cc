#include "server/coordinator/members/rate_window.h"

#include <algorithm>

namespace gradbus {

void RateWindow::add(const Count& count) {
  if (!counts_.empty()) {
    const Count& last = counts_.back();
    const bool backwards = count.operations < last.operations || count.bytes < last.bytes ||
                           count.wait_ns < last.wait_ns || count.at < last.at;
    if (backwards) counts_.clear();
  }
  counts_.push_back(count);
  // The oldest one stays while it is needed to cover the whole length.
  while (counts_.size() > 2 && count.at - counts_[1].at >= kLength) counts_.pop_front();
  while (counts_.size() > kCountsMax) counts_.pop_front();
}

double RateWindow::elapsed(Nanos now) const {
  if (counts_.size() < 2 || now - counts_.back().at > kSilence) return 0;
  return static_cast<double>(counts_.back().at - counts_.front().at) / kSecond;
}

double RateWindow::operations_per_s(Nanos now) const {
  const double seconds = elapsed(now);
  if (seconds <= 0) return 0;
  return static_cast<double>(counts_.back().operations - counts_.front().operations) / seconds;
}

double RateWindow::bytes_per_s(Nanos now) const {
  const double seconds = elapsed(now);
  if (seconds <= 0) return 0;
  return static_cast<double>(counts_.back().bytes - counts_.front().bytes) / seconds;
}

double RateWindow::waiting(Nanos now) const {
  const double seconds = elapsed(now);
  if (seconds <= 0) return 0;
  const auto waited = static_cast<double>(counts_.back().wait_ns - counts_.front().wait_ns);
  return std::min(1.0, waited / (seconds * kSecond));
}

bool RateWindow::full(Nanos now) const { return elapsed(now) >= 2; }

}  // namespace gradbus
