#include <algorithm>

#include "common/errors.h"
#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {
namespace {

Status check(const Workload& workload, const ScheduleOptions& options) {
  const uint64_t partition = options.partition_bytes;
  if (partition < kPartitionBytesMin)
    return error("F100",
                 "a partition of " + std::to_string(partition) + " bytes is too small to send",
                 "give at least " + std::to_string(kPartitionBytesMin) + " bytes");
  if (options.budget_bytes < partition)
    return error("F100",
                 "a budget of " + std::to_string(options.budget_bytes) +
                     " bytes in flight never lets a partition of " + std::to_string(partition) +
                     " bytes go",
                 "make the budget as large as a partition, or partitions smaller");
  if (workload.bytes() / partition + workload.layers.size() > kOperationsMax)
    return error("F100",
                 "partitions of " + std::to_string(partition) + " bytes cut " + workload.name +
                     " into more than " + std::to_string(kOperationsMax) + " operations",
                 "make partitions larger");
  return {};
}

// Equal parts, as few as fit.
void cut_layer(const Workload& workload, const Cluster& cluster, uint32_t layer,
               uint64_t partition_bytes, Plan* plan) {
  const uint64_t bytes = workload.layers[layer].bytes();
  const uint64_t parts = (bytes + partition_bytes - 1) / partition_bytes;
  for (uint64_t part = 0; part < parts; ++part) {
    const uint64_t begin = bytes / parts * part + std::min(part, bytes % parts);
    const uint64_t length = bytes / parts + (part < bytes % parts ? 1 : 0);
    Operation operation;
    operation.pieces = {{layer, begin, length}};
    operation.priority = layer;
    operation.compressed = !cluster.codec.is_dense();
    plan->operations.push_back(std::move(operation));
  }
}

}  // namespace

Result<Plan> plan_bytescheduler(const Workload& workload, const Cluster& cluster,
                                const ScheduleOptions& options) {
  GRADBUS_RETURN_IF_ERROR(check(workload, options));
  Plan plan;
  plan.steps_per_layer = true;
  plan.in_flight_bytes_max = options.budget_bytes;
  for (const uint32_t layer : gradient_order(workload))
    cut_layer(workload, cluster, layer, options.partition_bytes, &plan);
  plan.why = count_text(plan.operations.size(), "partition") + " of at most " +
             std::to_string(options.partition_bytes) + " bytes, the first layer's first";
  return plan;
}

}  // namespace gradbus::scheduling
