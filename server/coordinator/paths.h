// The measured costs of paths between agents, and the path to measure next.
//
// Each agent that attaches is paired with those that attached last before it. One agent of a pair
// measures. There is one measurement at a time in the whole cluster, because two on one wire would
// each find half of its bandwidth. Agents that a running job uses are not measured. No job waits
// for a measurement. Results are stored while both agents are attached.
//
// Part of Coordinator; pure.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "common/clock.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/coordinator/members/membership.h"
#include "server/coordinator/planning/cost_model.h"

namespace gradbus {

// Up to nine agents: all pairs. More: a sample that grows with the agents, not with their square.
inline constexpr size_t kPathsPerAgentMax = 8;
inline constexpr Nanos kProbeDeadline = 5 * kSecond;  // an agent gives up before (path_probe.h)
inline constexpr Nanos kProbeAgain = 30 * kSecond;    // a path that could not be measured

class Paths {
 public:
  using Pair = std::pair<uint64_t, uint64_t>;  // who measures, to whom
  struct Probe {
    uint64_t id = 0;
    Pair pair;
  };

  void attach(uint64_t agent);
  void detach(uint64_t agent);

  // Whether next() may have something: nothing is under way and some path is unknown.
  bool may_begin(Nanos now) const;
  // What to measure now, if anything, leaving `busy` agents alone: it is under way from here on.
  std::optional<Probe> next(const std::set<uint64_t>& busy, Nanos now);
  // false: `agent` was not asked this, or no path is like that.
  bool measured(uint64_t agent, const v1::PathMeasured& answer, Nanos now);

  // The worst figures among `agents`: their slowest path and slowest reduction.
  PathFigures worst(const std::map<uint64_t, AgentInfo>& agents) const;
  const std::map<Pair, PathFigures>& known() const { return known_; }

 private:
  struct Pending {
    Pair pair;
    Nanos not_before = 0;
  };

  void try_later(const Pair& pair, Nanos now) { pending_.push_back({pair, now + kProbeAgain}); }

  std::vector<uint64_t> agents_;  // in the order in which they attached
  std::deque<Pending> pending_;
  std::optional<Probe> under_way_;
  Nanos deadline_ = 0;  // of the one under way
  uint64_t next_id_ = 1;
  std::map<Pair, PathFigures> known_;
};

// Figures that a machine can have: 0.01 us to 10 s, 1 byte per ms to 10 TB/s. A NaN is none.
bool is_sane_path(double alpha_us, double beta_ns);
// `reduce_ns` of a Hello, 0 when it is nonsense.
double sane_reduce_ns(double reduce_ns);

}  // namespace gradbus
