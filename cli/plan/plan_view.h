// What `gradbus plan` shows: every schedule on a modelled cluster, and one step of one of them.
// Pure.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "cli/plan/recording.h"
#include "common/policy/sync_mode.h"
#include "common/status.h"
#include "server/scheduling/schedule.h"

namespace gradbus {

// The question.
struct PlannedCluster {
  scheduling::Workload workload;
  scheduling::Cluster cluster;
  scheduling::ScheduleOptions options;
  SyncMode mode;
  double bits_per_second = 0;
  std::optional<RecordedJob> recorded;  // the job that the layers come from
};

// The answer for one schedule, in the order of the table of schedules. In a mode that exchanges no
// gradients there is one answer, "none".
struct PlannedSchedule {
  std::string name;
  Status status;  // why there is no plan
  scheduling::Plan plan;
  scheduling::StepTimes times;
};

struct PlanReport {
  std::vector<PlannedSchedule> schedules;
  size_t recommended = 0;  // an index
  size_t shown = 0;        // whose timeline
};

// Plans and simulates all. `shown` is the name of a schedule, or "" for the recommended one.
// The status of a schedule that is shown by name, when it cannot be planned.
Result<PlanReport> plan_report(const PlannedCluster& question, const std::string& shown);

std::string plan_text(const PlannedCluster& question, const PlanReport& report);
// One object; times are microseconds.
std::string plan_json(const PlannedCluster& question, const PlanReport& report);

// Three lines of `columns` letters: what each stream does for most of each column's time.
std::string timeline_text(const scheduling::Plan& plan, const scheduling::StepTimes& times,
                          size_t columns);

}  // namespace gradbus
