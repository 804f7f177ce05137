#include <algorithm>

#include "common/errors.h"
#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {
namespace {

double time_on_link(const Workload& workload, const Cluster& cluster,
                    const std::vector<uint32_t>& layers) {
  const Plan plan = all_reduce_groups(workload, cluster, {layers});
  const OperationTimes times = operation_times(plan.operations.front(), cluster);
  return times.encode_us + times.exchange_us;
}

}  // namespace

// Whenever the link is free, all that is ready goes as one, up to the threshold. A larger gradient
// goes by itself.
Result<Plan> plan_fusion(const Workload& workload, const Cluster& cluster,
                         const ScheduleOptions& options) {
  if (options.fusion_bytes == 0)
    return error("F100", "a fusion threshold of 0 bytes holds no gradient",
                 "give at least one byte, or use the schedule wfbp");
  const std::vector<double> ready = ready_us(workload);
  const std::vector<uint32_t> order = gradient_order(workload);
  Groups groups;
  double free_us = 0;
  for (size_t i = 0; i < order.size();) {
    const double start_us = std::max(free_us, ready[order[i]]);
    std::vector<uint32_t> group = {order[i]};
    uint64_t bytes = workload.layers[order[i]].bytes();
    for (++i; i < order.size() && ready[order[i]] <= start_us; ++i) {
      bytes += workload.layers[order[i]].bytes();
      if (bytes > options.fusion_bytes) break;
      group.push_back(order[i]);
    }
    free_us = start_us + time_on_link(workload, cluster, group);
    groups.push_back(std::move(group));
  }
  Plan plan = all_reduce_groups(workload, cluster, groups);
  plan.why = count_text(groups.size(), "operation") + " of what waits together";
  return plan;
}

}  // namespace gradbus::scheduling
