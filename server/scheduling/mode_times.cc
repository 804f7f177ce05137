#include "server/scheduling/mode_times.h"

#include <algorithm>

#include "common/errors.h"

namespace gradbus::scheduling {
namespace {

using Kind = SyncMode::Kind;

Status no_formula(const SyncMode& mode, const std::string& why, const std::string& next) {
  return error("F100", "--mode " + mode.canonical + ": " + why, next);
}

Status check_shards(const SyncMode& mode, uint32_t shards, const Cluster& cluster) {
  if (shards == 0)
    return no_formula(mode, "the number of shards decides the time of a step",
                      "for example: --shards 4");
  if (cluster.network.nodes < 2)
    return no_formula(mode, "a plan for shards needs two nodes or more", "for example: --nodes 8");
  if (mode.settled_replicas(shards) > shards)
    return no_formula(mode, "there are fewer shards than replicas", "give more --shards");
  if (mode.keeps_tensors_whole())
    return no_formula(mode, "lamb keeps each tensor on one shard, so shards share no bytes equally",
                      "plan another optimizer");
  if (!cluster.codec.is_dense())
    return no_formula(mode, "compressed gradients on shards have no formula",
                      "leave --codec out, or plan a mode without shards");
  return {};
}

StepTimes times_of(const Workload& workload, double iteration_us, double coding_us,
                   double link_us) {
  StepTimes times;
  times.iteration_us = iteration_us;
  times.compute_us = workload.compute_us();
  times.coding_us = coding_us;
  times.exposed_us = std::max(0.0, iteration_us - times.compute_us - coding_us);
  times.link_us = link_us;
  return times;
}

StepTimes delayed_times(const Workload& workload, const Plan& plan, const Cluster& cluster,
                        uint32_t delay) {
  double link_us = 0;
  double coding_us = 0;
  double longest_us = 0;
  for (const Operation& operation : plan.operations) {
    const OperationTimes one = operation_times(operation, cluster);
    const double codes_us = one.encode_us + one.decode_us;
    link_us += one.exchange_us;
    coding_us += codes_us;
    longest_us = std::max(longest_us, codes_us + one.exchange_us);
  }
  const double on_compute_us = cluster.codec.on_compute ? coding_us : 0;
  return times_of(
      workload,
      std::max({workload.compute_us() + on_compute_us, link_us, coding_us, longest_us / delay}),
      on_compute_us, link_us);
}

// Elements of parameters travel as float32, or as float64.
double parameter_bytes(const Workload& workload) {
  double bytes = 0;
  for (const Layer& layer : workload.layers)
    bytes += static_cast<double>(layer.elements) * std::max(4U, layer.element_bytes);
  return bytes;
}

StepTimes periodic_times(const Workload& workload, const Cluster& cluster, const SyncMode& mode) {
  Operation fragment;
  const double bytes = parameter_bytes(workload) / mode.fragments;
  fragment.pieces = {{.layer = 0, .begin = 0, .bytes = static_cast<uint64_t>(bytes)}};
  fragment.compressed = !cluster.codec.is_dense();
  const OperationTimes one = operation_times(fragment, cluster);
  const double hidden_us = mode.overlap * workload.compute_us();
  const double exposed_us = one.encode_us + one.exchange_us + one.decode_us - hidden_us;
  const double per_step = static_cast<double>(mode.fragments) / mode.period_steps;
  return times_of(workload, workload.compute_us() + per_step * std::max(0.0, exposed_us), 0,
                  per_step * one.exchange_us);
}

}  // namespace

Status apply_mode(const SyncMode& mode, uint32_t shards, Cluster& cluster) {
  if (mode.kind == Kind::kAveraging || mode.kind == Kind::kGossip)
    return no_formula(mode, "it exchanges in the background, which has no formula",
                      "take sync, delayed, localsgd, diloco or a ps mode");
  if (!mode.on_shards()) {
    if (shards == 0) return {};
    return no_formula(mode, "it uses no shards", "leave --shards out, or add --mode ps:sync");
  }
  GRADBUS_RETURN_IF_ERROR(check_shards(mode, shards, cluster));
  cluster.network.shards = shards;
  cluster.network.replicas = mode.settled_replicas(shards);
  return {};
}

StepTimes step_times(const Workload& workload, const Plan& plan, const Cluster& cluster,
                     const SyncMode& mode) {
  if (mode.kind == Kind::kDelayed) return delayed_times(workload, plan, cluster, mode.delay);
  if (mode.is_local()) return periodic_times(workload, cluster, mode);
  return simulate(workload, plan, cluster);
}

}  // namespace gradbus::scheduling
