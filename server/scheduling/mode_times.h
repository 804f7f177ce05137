// How long a step takes in a mode (common/policy/sync_mode.h). Pure, closed forms; any thread.
//
// C is the computing time of a step. L is the time of its operations on the link, X that of coding.
//
//   mode           time of a step
//   sync           simulated: simulator.h
//   delayed:k      max(C, L, X, (e + l + d) / k)
//   localsgd:H     C + A / H for an all-reduce A of all parameters: Stich 2019
//   diloco:H       C + f / H max(0, A_f - o C)
//   ps:*           simulated, with push and pull in place of an all-reduce: network.h
//
// delayed is an ideal pipeline (Pipe-SGD, Li et al. 2018). Each operation is encoded, sent and
// decoded (e, l, d) within k steps. Without coding the time is max(C, L). In diloco each of f
// fragments has an all-reduce A_f that may take o steps (Streaming DiLoCo, Douillard et al. 2025).
// In ps modes equal nodes never wait for each other, so all of these modes take as long.
//
// averaging and gossip exchange in the background, and nothing here says how that slows a step.
#pragma once

#include "common/policy/sync_mode.h"
#include "common/status.h"
#include "server/scheduling/simulator.h"

namespace gradbus::scheduling {

// Sets the network's shards and replicas. GB-F100 for what has no formula: such a mode, shards
// without a ps mode, fewer than two nodes with shards, or a codec on shards.
Status apply_mode(const SyncMode& mode, uint32_t shards, Cluster& cluster);

// `plan` is valid for `workload`, and apply_mode() has taken the mode. The timeline is empty in all
// modes but sync and ps:*.
StepTimes step_times(const Workload& workload, const Plan& plan, const Cluster& cluster,
                     const SyncMode& mode);

}  // namespace gradbus::scheduling
