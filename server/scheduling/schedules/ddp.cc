#include "common/errors.h"
#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {

// The order is the one that was seen, which PyTorch learns in the first step.
Result<Plan> plan_ddp(const Workload& workload, const Cluster& cluster,
                      const ScheduleOptions& options) {
  if (options.bucket_bytes == 0 || options.first_bucket_bytes == 0)
    return error("F100", "a bucket of 0 bytes holds no gradient", "give at least one byte");
  Groups groups;
  uint64_t room = 0;  // what the open bucket still takes; 0: it is closed
  for (const uint32_t layer : gradient_order(workload)) {
    if (room == 0) {
      room = groups.empty() ? options.first_bucket_bytes : options.bucket_bytes;
      groups.emplace_back();
    }
    groups.back().push_back(layer);
    room -= std::min(room, workload.layers[layer].bytes());
  }
  Plan plan = all_reduce_groups(workload, cluster, groups);
  plan.why = count_text(groups.size(), "bucket") + " of about " +
             std::to_string(options.bucket_bytes >> 20) + " MiB";
  return plan;
}

}  // namespace gradbus::scheduling
