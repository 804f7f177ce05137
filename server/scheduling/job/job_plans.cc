#include "server/scheduling/job/job_plans.h"

#include <algorithm>
#include <cstdio>

#include "common/errors.h"
#include "server/scheduling/cut_optimum.h"

namespace gradbus::scheduling {
namespace {

constexpr std::string_view kWaits[] = {"backward", "layer", "split"};
// What the agents may interrupt: the planner's usual chunk (cost_model.h).
constexpr uint64_t kChunkBytes = 256 << 10;
constexpr uint64_t kGroupBytes[] = {512 << 10, 1 << 20, 2 << 20, 4 << 20, 8 << 20, 25 << 20};

Plan plan_of(const Workload& workload, const Cluster& cluster, const JobPlan& job) {
  Plan plan = job.wait == JobWait::kSplit ? split_groups(workload, cluster, job.groups)
                                          : all_reduce_groups(workload, cluster, job.groups);
  for (size_t i = 0; i < plan.operations.size(); ++i) {
    plan.operations[i].compressed = job.compressed[i % job.groups.size()];
    if (!job.codecs.empty()) plan.operations[i].codec = job.codecs[i % job.groups.size()];
  }
  if (job.wait == JobWait::kBackward) return plan;
  plan.steps_per_layer = true;
  plan.chunk_bytes = kChunkBytes;
  if (job.wait == JobWait::kSplit) return plan;
  for (Operation& operation : plan.operations)
    operation.priority =
        std::min_element(operation.pieces.begin(), operation.pieces.end(), [](auto& a, auto& b) {
          return a.layer < b.layer;
        })->layer;
  return plan;
}

Groups groups_by_bytes(const Workload& workload, uint64_t bytes_max) {
  Groups groups;
  uint64_t bytes = 0;
  for (const uint32_t layer : gradient_order(workload)) {
    const uint64_t more = workload.layers[layer].bytes();
    if (groups.empty() || bytes + more > bytes_max) {
      groups.emplace_back();
      bytes = 0;
    }
    groups.back().push_back(layer);
    bytes += more;
  }
  return groups;
}

JobPlan make(std::string schedule, JobWait wait, Groups groups, bool compressed) {
  JobPlan plan{.schedule = std::move(schedule), .wait = wait, .groups = std::move(groups)};
  plan.compressed.assign(plan.groups.size(), compressed);
  return plan;
}

// Of a plan of all-reduces, one for each group.
JobPlan from_plan(std::string_view schedule, const Plan& planned) {
  JobPlan plan{.schedule = std::string(schedule), .why = planned.why};
  for (const Operation& operation : planned.operations) {
    plan.groups.emplace_back();
    for (const Piece& piece : operation.pieces) plan.groups.back().push_back(piece.layer);
    plan.compressed.push_back(operation.compressed);
  }
  return plan;
}

class Best {
 public:
  Best(const Workload& workload, const Cluster& cluster) : workload_(workload), cluster_(cluster) {}

  void add_all(bool forward) {
    const bool coded = !cluster_.codec.is_dense();
    add_reduced(cluster_);
    for (const bool compressed : coded ? std::vector{false, true} : std::vector{false})
      add_sizes(forward, compressed);
    if (coded) {
      Cluster dense = cluster_;
      dense.codec = {};
      add_reduced(dense);
    }
    if (forward && can_split(cluster_.codec))
      offer(
          make("dear", JobWait::kSplit, layers_of(best_split_groups(workload_, cluster_)), coded));
  }

  // The fastest, and of each other wait its fastest.
  JobPlan best() const {
    std::vector<JobPlan> plans;
    for (const std::optional<JobPlan>& plan : best_of_)
      if (plan) plans.push_back(*plan);
    std::ranges::stable_sort(plans, {}, &JobPlan::step_us);
    JobPlan first = plans.front();
    first.others.assign(plans.begin() + 1, plans.end());
    return first;
  }
  size_t compared() const { return compared_; }

 private:
  static Groups layers_of(const std::vector<OptimalGroup>& optimal) {
    Groups groups;
    for (const OptimalGroup& group : optimal) groups.push_back(group.layers);
    return groups;
  }

  void add_reduced(const Cluster& cluster) {
    const auto optimal = best_all_reduce_groups(workload_, cluster);
    JobPlan plan = make("best cuts", JobWait::kBackward, layers_of(optimal), false);
    for (size_t i = 0; i < optimal.size(); ++i) plan.compressed[i] = optimal[i].compressed;
    offer(std::move(plan));
  }

  void add_sizes(bool forward, bool compressed) {
    for (const uint64_t bytes : kGroupBytes) {
      const Groups groups = groups_by_bytes(workload_, bytes);
      offer(make("ddp", JobWait::kBackward, groups, compressed));
      if (!forward) continue;
      offer(make("bytescheduler", JobWait::kLayer, groups, compressed));
      if (!compressed || can_split(cluster_.codec))
        offer(make("dear", JobWait::kSplit, groups, compressed));
    }
  }

  void offer(JobPlan plan) {
    predict(workload_, cluster_, &plan);
    ++compared_;
    std::optional<JobPlan>& best = best_of_[static_cast<size_t>(plan.wait)];
    if (!best || plan.step_us < best->step_us) best = std::move(plan);
  }

  const Workload& workload_;
  const Cluster& cluster_;
  std::optional<JobPlan> best_of_[std::size(kWaits)];
  size_t compared_ = 0;
};

JobPlan plan_best(const Workload& workload, const Cluster& cluster, const JobOptions& options) {
  Best best(workload, cluster);
  best.add_all(options.forward);
  JobPlan plan = best.best();
  const auto why = [](const JobPlan& one) {
    return one.schedule + " with " + count_text(one.groups.size(), "group");
  };
  for (JobPlan& other : plan.others)
    other.why = why(other) + ", the fastest plan by the model for its place to wait";
  plan.why =
      why(plan) + ", the fastest of " + std::to_string(best.compared()) + " plans by the model";
  return plan;
}

}  // namespace

std::string_view job_wait_name(JobWait wait) { return kWaits[static_cast<size_t>(wait)]; }

std::optional<JobWait> job_wait_of(std::string_view name) {
  for (size_t i = 0; i < std::size(kWaits); ++i)
    if (kWaits[i] == name) return static_cast<JobWait>(i);
  return {};
}

void predict(const Workload& workload, const Cluster& cluster, JobPlan* plan) {
  const StepTimes times = simulate(workload, plan_of(workload, cluster, *plan), cluster);
  plan->step_us = times.iteration_us;
  plan->exposed_us = times.exposed_us;
}

Result<JobPlan> plan_job(std::string_view schedule, const Workload& workload,
                         const Cluster& cluster, const JobOptions& options) {
  if (schedule != "mg-wfbp" && schedule != "mergecomp" && schedule != "auto")
    return error("F100",
                 "no plan is made for the schedule \"" + std::string(schedule.substr(0, 40)) +
                     "\" of a running job",
                 "take one of mg-wfbp, mergecomp, auto");
  if (gradient_order(workload).empty())
    return error("F100", workload.name + " has no gradients to plan for", "train some parameters");
  JobPlan plan;
  if (schedule == "auto") {
    plan = plan_best(workload, cluster, options);
  } else {
    const Result<Plan> planned = make_plan(schedule, workload, cluster, {.groups = options.groups});
    if (!planned.ok()) return planned.status();
    plan = from_plan(schedule, planned.value());
  }
  predict(workload, cluster, &plan);
  return plan;
}

}  // namespace gradbus::scheduling
