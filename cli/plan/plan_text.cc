#include <algorithm>
#include <array>
#include <cstdio>

#include "cli/plan/plan_view.h"
#include "cli/terminal/text_table.h"
#include "common/text/help_text.h"
#include "common/units.h"

namespace gradbus {
namespace {

using scheduling::Activity;
using scheduling::Interval;
using scheduling::Plan;
using scheduling::StepTimes;
using scheduling::Stream;

constexpr size_t kTimelineColumns = 66;
constexpr char kIdle = '.';

// Always milliseconds, so that a column can be compared.
std::string time_text(double us) {
  char text[32];
  std::snprintf(text, sizeof(text), us < 100'000 ? "%.2f ms" : "%.1f ms", us / 1000);
  return text;
}

std::string bandwidth_text(double bits_per_second) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.4g Gbit/s", bits_per_second / 1e9);
  return text;
}

std::string recorded_text(const PlannedCluster& question) {
  if (!question.recorded) return {};
  const RecordedJob& job = *question.recorded;
  return "recorded: " + time_text(job.step_us) + " a step with " + job.schedule + ", " +
         std::to_string(job.ranks) + (job.ranks == 1 ? " rank on " : " ranks on ") +
         std::to_string(job.nodes) + (job.nodes == 1 ? " node\n" : " nodes\n");
}

std::string mode_text(const PlannedCluster& question) {
  if (question.mode.kind == SyncMode::Kind::kSync) return {};
  const uint32_t shards = question.cluster.network.shards;
  const std::string on_shards = shards == 0 ? "" : " on " + std::to_string(shards) + " shards";
  return "mode " + question.mode.canonical + on_shards + "\n";
}

// A step of a mode with a formula has a time, and no timeline.
std::string step_text(const PlannedSchedule& shown) {
  const std::string why = wrapped(shown.name + ": " + shown.plan.why, 2);
  if (shown.times.timeline.empty()) return why;
  return "one step of " + shown.name +
         " (F forward, B backward, e encode, d decode,\nA all-reduce, S reduce-scatter, G "
         "all-gather):\n" +
         timeline_text(shown.plan, shown.times, kTimelineColumns) + why;
}

std::string question_text(const PlannedCluster& question) {
  const scheduling::Workload& workload = question.workload;
  const scheduling::Network& network = question.cluster.network;
  return workload.name + ": " + std::to_string(workload.layers.size()) + " layers, " +
         bytes_text(workload.bytes()) + " of gradients, computes for " +
         time_text(workload.compute_us()) + " a step\n" + std::to_string(network.nodes) +
         (network.nodes == 1 ? " node, " : " nodes, ") + bandwidth_text(question.bits_per_second) +
         ", " + nanoseconds_text(static_cast<uint64_t>(network.alpha_us * 1000)) +
         " a message, codec " + question.cluster.codec.name + "\n" + mode_text(question) +
         recorded_text(question) + "\n";
}

std::string table_text(const PlanReport& report) {
  TextTable table({{"schedule"},
                   {"iteration", 12, true},
                   {"exposed", 12, true},
                   {"efficiency", 10, true},
                   {"operations", 10, true}});
  for (const PlannedSchedule& row : report.schedules) {
    if (row.status.ok()) {
      table.add({row.name, time_text(row.times.iteration_us), time_text(row.times.exposed_us),
                 percent_text(row.times.efficiency()), std::to_string(row.plan.operations.size())});
    } else {
      table.add({row.name, "-", "-", "-", "-"});
    }
  }
  return table.text();
}

std::string refusals_text(const PlanReport& report) {
  std::string text;
  for (const PlannedSchedule& row : report.schedules)
    if (!row.status.ok()) text += wrapped(row.status.message(), 2);
  return text;
}

char letter(const Plan& plan, const Interval& interval) {
  switch (interval.activity) {
    case Activity::kForward: return 'F';
    case Activity::kBackward: return 'B';
    case Activity::kEncode: return 'e';
    case Activity::kDecode: return 'd';
    case Activity::kExchange: break;
  }
  switch (plan.operations[interval.index].kind) {
    case CollectiveKind::kReduceScatter: return 'S';
    case CollectiveKind::kAllGather: return 'G';
    default: return 'A';
  }
}

// How long each letter takes within [begin, end).
char busiest_letter(const Plan& plan, const StepTimes& times, Stream stream, double begin,
                    double end) {
  std::array<double, 128> busy{};
  double idle = end - begin;
  for (const Interval& interval : times.timeline) {
    const double shared = std::min(end, interval.end_us) - std::max(begin, interval.begin_us);
    if (interval.stream != stream || shared <= 0) continue;
    busy[static_cast<size_t>(letter(plan, interval))] += shared;
    idle -= shared;
  }
  const auto most = std::max_element(busy.begin(), busy.end());
  return *most > idle ? static_cast<char>(most - busy.begin()) : kIdle;
}

}  // namespace

std::string timeline_text(const Plan& plan, const StepTimes& times, size_t columns) {
  constexpr std::array<std::pair<Stream, const char*>, 3> kStreams = {
      {{Stream::kCompute, "compute"}, {Stream::kCodec, "codec  "}, {Stream::kLink, "link   "}}};
  const double width = times.iteration_us / static_cast<double>(columns);
  std::string text;
  for (const auto& [stream, name] : kStreams) {
    text += std::string("  ") + name + "  ";
    for (size_t i = 0; i < columns; ++i) {
      const double begin = width * static_cast<double>(i);
      text += busiest_letter(plan, times, stream, begin, begin + width);
    }
    text += "\n";
  }
  return text;
}

std::string plan_text(const PlannedCluster& question, const PlanReport& report) {
  const PlannedSchedule& shown = report.schedules[report.shown];
  const PlannedSchedule& recommended = report.schedules[report.recommended];
  return question_text(question) + table_text(report) + refusals_text(report) + "\n" +
         step_text(shown) + "\nrecommended: " + recommended.name + "\n";
}

}  // namespace gradbus
