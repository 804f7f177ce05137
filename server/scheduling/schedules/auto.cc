#include <algorithm>
#include <cstdio>
#include <optional>

#include "server/scheduling/cut_optimum.h"
#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {
namespace {

constexpr uint64_t kPartitionBytes[] = {256 << 10, 1 << 20, 4 << 20, 16 << 20};
constexpr double kSame = 1e-9;  // of a step: rounding

struct Candidate {
  std::string name;
  Plan plan;
  double iteration_us = 0;
};

std::string milliseconds(double us) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.1f ms", us / 1000);
  return text;
}

Groups layers_of(const std::vector<OptimalGroup>& groups) {
  Groups layers;
  for (const OptimalGroup& group : groups) layers.push_back(group.layers);
  return layers;
}

// All that auto compares. The first of equals wins, so simple schedules stand first.
class Candidates {
 public:
  Candidates(const Workload& workload, const Cluster& cluster, const ScheduleOptions& options)
      : workload_(workload), cluster_(cluster), options_(options) {}

  void add_all() {
    add_for(cluster_, "");
    if (cluster_.codec.is_dense()) return;
    Cluster dense = cluster_;
    dense.codec = {};
    add_for(dense, " without the codec");
  }

  const Candidate& best() const { return *best_; }

  // The fastest schedule that a user could have named.
  const Candidate& best_named() const { return *best_named_; }

 private:
  void add_for(const Cluster& cluster, const std::string& suffix) {
    for (const Schedule& schedule : schedules())
      if (schedule.planner != plan_auto) offer_named(schedule, cluster, suffix);
    add_partitions(cluster, suffix);
    add_best_reduced(cluster, suffix);
    if (can_split(cluster.codec))
      offer("dear with the best cuts" + suffix,
            split_groups(workload_, cluster, layers_of(best_split_groups(workload_, cluster))));
  }

  void add_partitions(const Cluster& cluster, const std::string& suffix) {
    for (const uint64_t bytes : kPartitionBytes) {
      ScheduleOptions options = options_;
      options.partition_bytes = options.budget_bytes = bytes;
      Result<Plan> plan = plan_bytescheduler(workload_, cluster, options);
      if (plan.ok())
        offer("bytescheduler with partitions of " + std::to_string(bytes >> 10) + " KiB" + suffix,
              plan.take());
    }
  }

  void add_best_reduced(const Cluster& cluster, const std::string& suffix) {
    const std::vector<OptimalGroup> groups = best_all_reduce_groups(workload_, cluster);
    Plan plan = all_reduce_groups(workload_, cluster, layers_of(groups));
    for (size_t i = 0; i < groups.size(); ++i) plan.operations[i].compressed = groups[i].compressed;
    offer("all-reduces with the best cuts" + suffix, std::move(plan));
  }

  // What cannot be planned, such as dear with a codec that it cannot carry, is no candidate.
  void offer_named(const Schedule& schedule, const Cluster& cluster, const std::string& suffix) {
    Result<Plan> plan = schedule.planner(workload_, cluster, options_);
    if (!plan.ok()) return;
    const std::string name = std::string(schedule.name) + suffix;
    const double us = offer(name, plan.value());
    if (!best_named_ || us < best_named_->iteration_us) best_named_ = {name, plan.take(), us};
  }

  double offer(const std::string& name, Plan plan) {
    const double us = simulate(workload_, plan, cluster_).iteration_us;
    if (!best_ || us < best_->iteration_us * (1 - kSame)) best_ = {name, std::move(plan), us};
    return us;
  }

  const Workload& workload_;
  const Cluster& cluster_;
  const ScheduleOptions& options_;
  std::optional<Candidate> best_;
  std::optional<Candidate> best_named_;
};

std::string reason(const Candidate& best, const Candidate& named) {
  const std::string what = best.name + ", " + count_text(best.plan.operations.size(), "operation");
  if (best.name == named.name) return what + ": no other schedule is faster";
  return what + ": " + milliseconds(best.iteration_us) + " against " +
         milliseconds(named.iteration_us) + " with " + named.name;
}

}  // namespace

Result<Plan> plan_auto(const Workload& workload, const Cluster& cluster,
                       const ScheduleOptions& options) {
  Candidates candidates(workload, cluster, options);
  candidates.add_all();
  Plan plan = candidates.best().plan;
  plan.why = reason(candidates.best(), candidates.best_named());
  return plan;
}

}  // namespace gradbus::scheduling
