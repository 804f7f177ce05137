#include "server/coordinator/jobs/loss_rule.h"

#include <cmath>
#include <cstdio>
#include <numeric>
#include <utility>

namespace gradbus {
namespace {

constexpr Nanos kLossWindow = kSecond;

template <typename Iterator>
double mean(Iterator first, Iterator last) {
  return std::accumulate(first, last, 0.0) / static_cast<double>(last - first);
}

}  // namespace

LossRule::Total LossRule::total_of(const Membership& membership) {
  Total total;
  for (const auto& [rank, record] : membership.ranks()) {
    total.losses += record.counters.losses();
    total.not_finite += record.counters.losses_not_finite();
    total.sum += record.counters.loss_sum();
  }
  return total;
}

void LossRule::forget() {
  means_.clear();
  began_at_ = 0;
  applied_ = false;
}

bool LossRule::look(const Membership& membership, Nanos now) {
  if (options_.share_max <= 0 || applied_) return false;
  const Total total = total_of(membership);
  if (began_at_ == 0) {
    began_ = total;
    began_at_ = now;
  }
  if (total.not_finite > began_.not_finite) {
    reason_ = "a loss is not finite";
    applied_ = true;
  } else if (now - began_at_ >= kLossWindow) {
    applied_ = close(total);
    began_at_ = now;
  }
  return applied_;
}

bool LossRule::close(const Total& total) {
  const Total before = std::exchange(began_, total);
  if (total.losses <= before.losses) return false;
  means_.push_back((total.sum - before.sum) / static_cast<double>(total.losses - before.losses));
  if (means_.size() > options_.windows + options_.recent) means_.pop_front();
  return jumped();
}

// A mean that is 0 or less says nothing about shares of it.
bool LossRule::jumped() {
  if (means_.size() < options_.windows_min + options_.recent) return false;
  const auto recent = means_.end() - options_.recent;
  const double before = mean(means_.begin(), recent);
  const double now = mean(recent, means_.end());
  if (!(before > 0) || now <= options_.share_max * before) return false;
  char text[96];
  std::snprintf(text, sizeof(text), "the loss rose from %.4g to %.4g", before, now);
  reason_ = text;
  return true;
}

}  // namespace gradbus
