#include "server/coordinator/paths.h"

#include <algorithm>

namespace gradbus {
namespace {

bool within(double value, double least, double most) { return value >= least && value <= most; }

bool joins(const Paths::Pair& pair, uint64_t agent) {
  return pair.first == agent || pair.second == agent;
}

}  // namespace

bool is_sane_path(double alpha_us, double beta_ns) {
  return within(alpha_us, 0.01, 1e7) && within(beta_ns, 1e-4, 1e6);
}

double sane_reduce_ns(double reduce_ns) { return within(reduce_ns, 1e-4, 1e3) ? reduce_ns : 0; }

void Paths::attach(uint64_t agent) {
  const size_t count = std::min(agents_.size(), kPathsPerAgentMax);
  for (size_t i = 1; i <= count; ++i) pending_.push_back({{agent, agents_[agents_.size() - i]}, 0});
  agents_.push_back(agent);
}

void Paths::detach(uint64_t agent) {
  std::erase(agents_, agent);
  std::erase_if(pending_, [&](const Pending& entry) { return joins(entry.pair, agent); });
  std::erase_if(known_, [&](const auto& entry) { return joins(entry.first, agent); });
  if (under_way_ && joins(under_way_->pair, agent)) under_way_.reset();
}

bool Paths::may_begin(Nanos now) const { return under_way_ ? now >= deadline_ : !pending_.empty(); }

std::optional<Paths::Probe> Paths::next(const std::set<uint64_t>& busy, Nanos now) {
  if (!may_begin(now)) return std::nullopt;
  if (under_way_) try_later(under_way_->pair, now);
  under_way_.reset();
  const auto found = std::find_if(pending_.begin(), pending_.end(), [&](const Pending& entry) {
    return now >= entry.not_before && !busy.contains(entry.pair.first) &&
           !busy.contains(entry.pair.second);
  });
  if (found == pending_.end()) return std::nullopt;
  under_way_ = Probe{next_id_++, found->pair};
  deadline_ = now + kProbeDeadline;
  pending_.erase(found);
  return under_way_;
}

bool Paths::measured(uint64_t agent, const v1::PathMeasured& answer, Nanos now) {
  if (answer.probe_id() == 0 || answer.probe_id() >= next_id_) return false;
  // Too late to count: its agent or the deadline has gone.
  if (!under_way_ || under_way_->id != answer.probe_id()) return true;
  if (under_way_->pair.first != agent) return false;
  const Pair pair = under_way_->pair;
  under_way_.reset();
  const bool sane = is_sane_path(answer.alpha_us(), answer.beta_ns());
  if (sane) {
    known_[pair] = {.alpha_us = answer.alpha_us(), .beta_ns = answer.beta_ns()};
  } else {
    try_later(pair, now);
  }
  return sane || (answer.alpha_us() == 0 && answer.beta_ns() == 0);
}

PathFigures Paths::worst(const std::map<uint64_t, AgentInfo>& agents) const {
  PathFigures worst;
  for (const auto& [id, info] : agents) {
    worst.gamma_ns = std::max(worst.gamma_ns, info.reduce_ns);
    // Those that this agent has measured.
    for (auto at = known_.lower_bound({id, 0}); at != known_.end() && at->first.first == id; ++at) {
      if (!agents.contains(at->first.second)) continue;
      worst.alpha_us = std::max(worst.alpha_us, at->second.alpha_us);
      worst.beta_ns = std::max(worst.beta_ns, at->second.beta_ns);
    }
  }
  return worst;
}

}  // namespace gradbus
