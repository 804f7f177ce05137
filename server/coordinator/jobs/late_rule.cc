#include "server/coordinator/jobs/late_rule.h"

#include <algorithm>

namespace gradbus {
namespace {

constexpr Nanos kLateWindow = kSecond;

}  // namespace

bool LateRule::look(const Membership& membership) {
  if (options_.mode.empty() || applied_ || !is_over(membership)) return false;
  close(membership);
  applied_ = windows_.size() == options_.windows && lateness() > options_.share_max;
  return applied_;
}

// Agents report at times of their own, so a window is over when it is for each rank. One that has
// left ends the rule: the job is ending.
bool LateRule::is_over(const Membership& membership) const {
  return std::ranges::all_of(membership.ranks(), [&](const auto& entry) {
    const auto& [rank, record] = entry;
    if (record.state != RankRecord::State::kJoined || record.counted_at == 0) return false;
    const auto began = began_.find(rank);
    return began == began_.end() || record.counted_at - began->second.at >= kLateWindow;
  });
}

void LateRule::close(const Membership& membership) {
  Window window;
  for (const auto& [rank, record] : membership.ranks()) {
    Count& began = began_[rank];
    const Count now{record.counted_at, record.counters.wait_ns()};
    // A wait counts when it is over, so a share may be above 1, and the one before lacks it.
    if (began.at != 0 && now.wait_ns >= began.wait_ns)
      window.shares[rank] =
          static_cast<double>(now.wait_ns - began.wait_ns) / static_cast<double>(now.at - began.at);
    began = now;
  }
  if (window.shares.size() < membership.ranks().size()) return;  // the first look
  const auto by_share = [](const auto& a, const auto& b) { return a.second < b.second; };
  const auto [least, most] = std::ranges::minmax_element(window.shares, by_share);
  window.lateness = most->second - least->second;
  windows_.push_back(std::move(window));
  if (windows_.size() > options_.windows) windows_.pop_front();
}

double LateRule::lateness() const {
  double sum = 0;
  for (const Window& window : windows_) sum += window.lateness;
  return windows_.empty() ? 0 : sum / static_cast<double>(windows_.size());
}

uint32_t LateRule::latest_rank() const {
  std::map<uint32_t, double> waited;
  for (const Window& window : windows_)
    for (const auto& [rank, share] : window.shares) waited[rank] += share;
  const auto by_share = [](const auto& a, const auto& b) { return a.second < b.second; };
  return waited.empty() ? 0 : std::ranges::min_element(waited, by_share)->first;
}

}  // namespace gradbus
