#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {

Result<Plan> plan_wfbp(const Workload& workload, const Cluster& cluster, const ScheduleOptions&) {
  Groups groups;
  for (const uint32_t layer : gradient_order(workload)) groups.push_back({layer});
  Plan plan = all_reduce_groups(workload, cluster, groups);
  plan.why = count_text(groups.size(), "layer") + ", each by itself";
  return plan;
}

}  // namespace gradbus::scheduling
