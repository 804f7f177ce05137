// The planners behind the table in schedule.cc, and what several of them share. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "server/scheduling/schedule.h"

namespace gradbus::scheduling {

// wfbp.cc: wait-free backpropagation (Poseidon, Zhang et al. 2017). One operation per layer.
Result<Plan> plan_wfbp(const Workload& workload, const Cluster& cluster,
                       const ScheduleOptions& options);
// ddp.cc: Li et al. 2020, "PyTorch Distributed". A bucket is closed when it has reached its size.
Result<Plan> plan_ddp(const Workload& workload, const Cluster& cluster,
                      const ScheduleOptions& options);
// fusion.cc: Sergeev and Del Balso 2018 (Horovod), without a cycle that waits.
Result<Plan> plan_fusion(const Workload& workload, const Cluster& cluster,
                         const ScheduleOptions& options);
// mg_wfbp.cc: Shi et al. 2019, "MG-WFBP", section IV.
Result<Plan> plan_mg_wfbp(const Workload& workload, const Cluster& cluster,
                          const ScheduleOptions& options);
// bytescheduler.cc: Peng et al. 2019. GB-F100 when the budget is smaller than a partition.
Result<Plan> plan_bytescheduler(const Workload& workload, const Cluster& cluster,
                                const ScheduleOptions& options);
// dear.cc: Zhang et al. 2023. GB-F100 for a codec whose payloads cannot be summed.
Result<Plan> plan_dear(const Workload& workload, const Cluster& cluster,
                       const ScheduleOptions& options);
// mergecomp.cc: Wang et al. 2021, with any number of groups.
Result<Plan> plan_mergecomp(const Workload& workload, const Cluster& cluster,
                            const ScheduleOptions& options);
// auto.cc
Result<Plan> plan_auto(const Workload& workload, const Cluster& cluster,
                       const ScheduleOptions& options);

// Whether a reduce-scatter and an all-gather of it can be sent by themselves.
bool can_split(const CodecCost& codec);

// The whole gradient of a layer.
Piece whole(const Workload& workload, uint32_t layer);

// Layers with parameters, in the order in which their gradients become ready.
std::vector<uint32_t> gradient_order(const Workload& workload);

// Groups of layers, in the order in which they are sent.
using Groups = std::vector<std::vector<uint32_t>>;

// One all-reduce per group, in order.
Plan all_reduce_groups(const Workload& workload, const Cluster& cluster, const Groups& groups);
// One reduce-scatter per group in order, and their all-gathers, the first layer's first. The next
// forward pass of a layer waits for its own group only.
Plan split_groups(const Workload& workload, const Cluster& cluster, const Groups& groups);

// `order` cut before each of `cuts`, which rise from 1 to order.size() - 1.
Groups cut(const std::vector<uint32_t>& order, const std::vector<uint32_t>& cuts);

// "7 operations" and the like.
std::string count_text(size_t count, const std::string& noun);

}  // namespace gradbus::scheduling
