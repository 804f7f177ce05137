#include <algorithm>
#include <limits>

#include "cli/plan/plan_view.h"
#include "common/errors.h"
#include "server/scheduling/mode_times.h"

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
  row.times = step_times(question.workload, row.plan, question.cluster, question.mode);
  return row;
}

// No gradient is exchanged, so no schedule orders any.
Result<PlanReport> report_without_schedule(const PlannedCluster& question,
                                           const std::string& shown) {
  if (!shown.empty())
    return error("F100", "--mode " + question.mode.canonical + " exchanges no gradients",
                 "leave --schedule out");
  PlannedSchedule row{"none", {}, {}, {}};
  row.plan.why = "parameters are exchanged every " + std::to_string(question.mode.period_steps) +
                 " steps, and gradients are not";
  row.times = step_times(question.workload, row.plan, question.cluster, question.mode);
  return PlanReport{.schedules = {row}};
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
  if (question.mode.is_local()) return report_without_schedule(question, shown);
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
