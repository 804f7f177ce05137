// Plans that a running job can carry out: groups of whole gradients, and where the ranks wait.
//
// Pure; any thread. A running job sends a group as one tensor. Its agents cut tensors into chunks,
// so an urgent group overtakes between two chunks.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "server/scheduling/schedule.h"
#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {

enum class JobWait : uint8_t {
  kBackward,  // for all, at the end of the backward pass
  kLayer,     // in the next forward pass; the first layers go first
  kSplit,     // as kLayer, but all partial sums go before results
};

struct JobPlan {
  std::string schedule = {};
  JobWait wait = JobWait::kBackward;
  Groups groups = {};                 // in the order in which they are ready
  std::vector<bool> compressed = {};  // by group
  std::vector<uint32_t> codecs = {};  // by group, as Operation::codec; empty: 0
  double step_us = 0;
  double exposed_us = 0;
  std::string why = {};
  std::vector<JobPlan> others = {};  // auto: the best where ranks wait elsewhere, the fastest first
};

struct JobOptions {
  bool forward = false;  // ranks may wait in the next forward pass
  uint32_t groups = 0;   // mergecomp: exact number; 0: searched
};

std::string_view job_wait_name(JobWait wait);
std::optional<JobWait> job_wait_of(std::string_view name);

// The time of a step with these groups. They hold every layer that has a gradient, once.
void predict(const Workload& workload, const Cluster& cluster, JobPlan* plan);

// mg-wfbp, mergecomp or auto. GB-F100 for another name or an impossible option.
Result<JobPlan> plan_job(std::string_view schedule, const Workload& workload,
                         const Cluster& cluster, const JobOptions& options);

}  // namespace gradbus::scheduling
