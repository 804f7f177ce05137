#include "common/errors.h"
#include "server/scheduling/cut_search.h"
#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {

// The search asks the simulator. On a running job it can ask the job.
Result<Plan> plan_mergecomp(const Workload& workload, const Cluster& cluster,
                            const ScheduleOptions& options) {
  const std::vector<uint32_t> order = gradient_order(workload);
  if (options.groups > order.size())
    return error("F100",
                 std::to_string(options.groups) + " groups need as many layers with parameters, " +
                     "but " + workload.name + " has " + std::to_string(order.size()),
                 "ask for at most " + std::to_string(order.size()) + " groups");
  const auto plan_of = [&](const Cuts& cuts) {
    return all_reduce_groups(workload, cluster, cut(order, cuts));
  };
  const auto cost = [&](const Cuts& cuts) {
    return simulate(workload, plan_of(cuts), cluster).iteration_us;
  };
  Cuts cuts;
  if (!order.empty())
    cuts = search_cuts(static_cast<uint32_t>(order.size()), {.groups = options.groups}, cost);
  Plan plan = plan_of(cuts);
  plan.why = count_text(plan.operations.size(), "group") +
             (options.groups > 0 ? ", as many as were asked for" : ", cut by search");
  return plan;
}

}  // namespace gradbus::scheduling
