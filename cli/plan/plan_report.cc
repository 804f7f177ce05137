#include "cli/plan/plan_view.h"

#include <algorithm>
#include <limits>

namespace gradbus {
namespace {

using scheduling::Plan;
using scheduling::Schedule;

// A schedule must be faster by this part to be preferred to a simpler one, which stands before it.
constexpr double kGainMin = 0.01;

PlannedSchedule planned(const Schedule& schedule, const PlannedCluster& question) {
  PlannedSchedule row{std::string(schedule.name), {}, {}, {}};
  Result<Plan> plan =
      make_plan(schedule.name, question.workload, question.cluster, question.options);
  if (!plan.ok()) {
    row.status = plan.status();
    return row;
  }
  row.plan = plan.take();
  row.times = simulate(question.workload, row.plan, question.cluster);
  return row;
}

size_t recommended_of(const std::vector<PlannedSchedule>& rows) {
  double best_us = std::numeric_limits<double>::infinity();
  for (const PlannedSchedule& row : rows)
    if (row.status.ok()) best_us = std::min(best_us, row.times.iteration_us);
  const auto good = [&](const PlannedSchedule& row) {
    return row.status.ok() && row.times.iteration_us <= best_us * (1 + kGainMin);
  };
  return static_cast<size_t>(std::ranges::find_if(rows, good) - rows.begin());
}

}  // namespace

Result<PlanReport> plan_report(const PlannedCluster& question, const std::string& shown) {
  PlanReport report;
  for (const Schedule& schedule : scheduling::schedules())
    report.schedules.push_back(planned(schedule, question));
  report.recommended = report.shown = recommended_of(report.schedules);
  if (shown.empty()) return report;
  for (size_t i = 0; i < report.schedules.size(); ++i)
    if (report.schedules[i].name == shown) {
      report.shown = i;
      if (!report.schedules[i].status.ok()) return report.schedules[i].status;
      return report;
    }
  return make_plan(shown, question.workload, question.cluster, question.options).status();
}

}  // namespace gradbus
