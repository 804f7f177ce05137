#include "server/scheduling/schedule.h"

#include <vector>

#include "common/check.h"
#include "common/errors.h"
#include "common/policy/spec_options.h"
#include "server/scheduling/schedules/planners.h"

namespace gradbus::scheduling {
namespace {

constexpr Schedule kSchedules[] = {
    {"wfbp", "each layer's gradient as soon as it is ready", plan_wfbp},
    {"ddp", "buckets of fixed size, in the order in which gradients become ready", plan_ddp},
    {"fusion", "what waits when the link gets free is sent together", plan_fusion},
    {"bytescheduler", "partitions, the first layer's first, with a byte budget in flight",
     plan_bytescheduler},
    {"mg-wfbp", "neighbours are merged when a saved startup pays for the wait", plan_mg_wfbp},
    {"dear", "reduce-scatter during backward, all-gather before each layer's next forward",
     plan_dear},
    {"mergecomp", "groups that are compressed together, cut by search", plan_mergecomp},
    {"auto", "the fastest of all, and of the best cuts", plan_auto},
};

Status unknown_schedule(std::string_view name) {
  std::vector<std::string> names;
  std::string list;
  for (const Schedule& schedule : kSchedules) {
    names.emplace_back(schedule.name);
    list += (list.empty() ? "" : ", ") + names.back();
  }
  return error("F100",
               "there is no schedule \"" + std::string(name.substr(0, 40)) + "\"" +
                   did_you_mean(name, names),
               "take one of: " + list);
}

}  // namespace

std::span<const Schedule> schedules() { return kSchedules; }

Result<Plan> make_plan(std::string_view name, const Workload& workload, const Cluster& cluster,
                       const ScheduleOptions& options) {
  for (const Schedule& schedule : kSchedules) {
    if (schedule.name != name) continue;
    Result<Plan> plan = schedule.planner(workload, cluster, options);
    if (!plan.ok()) return plan;
    plan.value().schedule = name;
    GRADBUS_RETURN_IF_ERROR(validate(workload, plan.value()));
    return plan;
  }
  return unknown_schedule(name);
}

}  // namespace gradbus::scheduling
