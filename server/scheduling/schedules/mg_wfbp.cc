#include <algorithm>

#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {
namespace {

// The group that still may grow.
struct OpenGroup {
  double ready_us = 0;
  uint64_t bytes = 0;
};

double exchange_of(const Cluster& cluster, uint64_t bytes) {
  const auto amount = static_cast<double>(bytes);
  return exchange_us(CollectiveKind::kAllReduce, cluster.codec, amount, cluster.network);
}

}  // namespace

// A gradient joins the group before it when it is ready before that group's start plus one
// startup. Then both end sooner together: one startup is saved, and less than one is waited.
// The original also merges everything below 8,192 elements; that can delay and is left out.
Result<Plan> plan_mg_wfbp(const Workload& workload, const Cluster& cluster,
                          const ScheduleOptions&) {
  const std::vector<double> ready = ready_us(workload);
  const double startup = exchange_of(cluster, 0);
  Groups groups;
  OpenGroup open;
  double free_us = 0;  // of the link, when all groups before the open one are sent
  for (const uint32_t layer : gradient_order(workload)) {
    const double start_us = std::max(free_us, open.ready_us);
    const bool joins = !groups.empty() && ready[layer] < start_us + startup;
    if (!joins) {
      if (!groups.empty()) free_us = start_us + exchange_of(cluster, open.bytes);
      groups.emplace_back();
      open = {};
    }
    groups.back().push_back(layer);
    open = {ready[layer], open.bytes + workload.layers[layer].bytes()};
  }
  Plan plan = all_reduce_groups(workload, cluster, groups);
  plan.why = count_text(groups.size(), "group") + ", merged where a startup of " +
             std::to_string(static_cast<int64_t>(startup)) + " us pays for the wait";
  return plan;
}

}  // namespace gradbus::scheduling
