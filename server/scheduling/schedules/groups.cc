#include <algorithm>

#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {
namespace {

Operation operation_of(const Workload& workload, const Cluster& cluster,
                       const std::vector<uint32_t>& layers, CollectiveKind kind) {
  Operation operation;
  operation.kind = kind;
  for (const uint32_t layer : layers) operation.pieces.push_back(whole(workload, layer));
  operation.compressed = !cluster.codec.is_dense();
  return operation;
}

}  // namespace

bool can_split(const CodecCost& codec) { return codec.carrier == Carrier::kAllReduce; }

Piece whole(const Workload& workload, uint32_t layer) {
  return {layer, 0, workload.layers[layer].bytes()};
}

std::vector<uint32_t> gradient_order(const Workload& workload) {
  std::vector<uint32_t> order;
  for (const uint32_t layer : workload.backward_order)
    if (workload.layers[layer].elements > 0) order.push_back(layer);
  return order;
}

Plan all_reduce_groups(const Workload& workload, const Cluster& cluster, const Groups& groups) {
  Plan plan;
  for (const std::vector<uint32_t>& layers : groups) {
    plan.operations.push_back(operation_of(workload, cluster, layers, CollectiveKind::kAllReduce));
    plan.operations.back().priority = static_cast<int64_t>(plan.operations.size());
  }
  return plan;
}

Plan split_groups(const Workload& workload, const Cluster& cluster, const Groups& groups) {
  Plan plan;
  plan.steps_per_layer = true;
  const auto count = static_cast<int32_t>(groups.size());
  const auto layers = static_cast<int64_t>(workload.layers.size());
  for (const std::vector<uint32_t>& group : groups) {
    plan.operations.push_back(
        operation_of(workload, cluster, group, CollectiveKind::kReduceScatter));
    plan.operations.back().priority = -layers;  // reductions first, the oldest of them
  }
  for (int32_t i = 0; i < count; ++i) {
    const std::vector<uint32_t>& group = groups[static_cast<size_t>(i)];
    Operation gather = operation_of(workload, cluster, group, CollectiveKind::kAllGather);
    gather.start = Start::kBackwardEnd;
    gather.after = i;
    gather.priority = *std::min_element(group.begin(), group.end());
    plan.operations.push_back(std::move(gather));
  }
  return plan;
}

Groups cut(const std::vector<uint32_t>& order, const std::vector<uint32_t>& cuts) {
  Groups groups;
  size_t begin = 0;
  for (size_t i = 0; i <= cuts.size(); ++i) {
    const size_t end = i < cuts.size() ? cuts[i] : order.size();
    if (begin < end)
      groups.emplace_back(order.begin() + static_cast<std::ptrdiff_t>(begin),
                          order.begin() + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return groups;
}

std::string count_text(size_t count, const std::string& noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

}  // namespace gradbus::scheduling
