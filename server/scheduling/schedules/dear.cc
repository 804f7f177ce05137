#include <algorithm>

#include "common/errors.h"
#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {
namespace {

// In forward order, as DeAR groups modules: a group takes layers while it stays below the size.
Groups groups_of(const Workload& workload, const ScheduleOptions& options) {
  Groups groups;
  uint64_t bytes = 0;
  for (uint32_t layer = 0; layer < workload.layers.size(); ++layer) {
    const uint64_t more = workload.layers[layer].bytes();
    if (more == 0) continue;
    const bool full = options.nearby_layers > 0
                          ? !groups.empty() && groups.back().size() >= options.nearby_layers
                          : bytes + more >= options.dear_bytes;
    if (groups.empty() || full) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(layer);
    bytes += more;
  }
  std::reverse(groups.begin(), groups.end());
  return groups;
}

Status check_cluster(const Cluster& cluster, const ScheduleOptions& options) {
  if (!can_split(cluster.codec))
    return error("F100",
                 "the schedule dear cannot carry the codec " + cluster.codec.name +
                     ": it sums payloads, and those of this codec cannot be summed",
                 "use the codec none or fp16, or the schedule mergecomp");
  if (options.nearby_layers == 0 && options.dear_bytes == 0)
    return error("F100", "a fusion of 0 bytes holds no gradient", "give at least one byte");
  return {};
}

}  // namespace

Result<Plan> plan_dear(const Workload& workload, const Cluster& cluster,
                       const ScheduleOptions& options) {
  GRADBUS_RETURN_IF_ERROR(check_cluster(cluster, options));
  const Groups groups = groups_of(workload, options);
  Plan plan = split_groups(workload, cluster, groups);
  plan.why = count_text(groups.size(), "group") + " of neighbouring layers, reduce-scatter and " +
             "all-gather apart";
  return plan;
}

}  // namespace gradbus::scheduling
