// The best cuts by the cost model: dynamic programming over contiguous groups of gradients.
//
// Each returns groups in the order in which gradients become ready. Both minimise the end of a
// step. Between two positions many cuts lead to the same place; only those survive that no other
// one beats in every respect (a Pareto front), so the result is the optimum while fronts are short.
//
//   all-reduce   front: when the link is free, when decoding ends, how far coding has come
//   split        front: when the link is free, and how long the rest of the forward pass then takes
//
// Pure; any thread. Time: layers^2 times the length of a front. More than kAtomsMax layers are
// first joined to kAtomsMax atoms of equal bytes.
#pragma once

#include <cstdint>
#include <vector>

#include "server/scheduling/simulator.h"
#include "server/scheduling/workload.h"

namespace gradbus::scheduling {

inline constexpr size_t kAtomsMax = 512;
inline constexpr size_t kFrontMax = 24;

struct OptimalGroup {
  std::vector<uint32_t> layers;
  bool compressed = false;
};

// One all-reduce per group, in order; the next forward pass waits for all. With a codec, each group
// is compressed or dense, whichever is faster.
std::vector<OptimalGroup> best_all_reduce_groups(const Workload& workload, const Cluster& cluster);

// A reduce-scatter in order, and an all-gather before the group's forward pass. All are compressed
// when the cluster has a codec; payloads of that codec can be summed.
std::vector<OptimalGroup> best_split_groups(const Workload& workload, const Cluster& cluster);

}  // namespace gradbus::scheduling
