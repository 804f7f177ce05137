#include "cli/plan_view.h"

namespace gradbus {
namespace {

using scheduling::Plan;
using scheduling::Schedule;

// A schedule of one's own must pay for being harder to explain.
constexpr double kAutoGainMin = 0.01;

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

// The first of equals: simple schedules stand first, auto stands last.
size_t recommended_of(const std::vector<PlannedSchedule>& rows) {
  size_t best = rows.size() - 1;
  for (size_t i = rows.size() - 1; i-- > 0;) {
    const double limit = best + 1 == rows.size() ? 1 + kAutoGainMin : 1;
    const bool good = rows[i].times.iteration_us <= rows[best].times.iteration_us * limit;
    if (rows[i].status.ok() && good) best = i;
  }
  return best;
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
