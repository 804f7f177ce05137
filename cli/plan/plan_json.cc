#include <nlohmann/json.hpp>

#include "cli/plan/plan_view.h"
#include "proto/numbers.h"

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;
using scheduling::Activity;
using scheduling::Interval;
using scheduling::Stream;

std::string activity_name(const scheduling::Plan& plan, const Interval& interval) {
  switch (interval.activity) {
    case Activity::kForward: return "forward";
    case Activity::kBackward: return "backward";
    case Activity::kEncode: return "encode";
    case Activity::kDecode: return "decode";
    case Activity::kExchange: break;
  }
  return std::string(collective_name(plan.operations[interval.index].kind));
}

const char* stream_name(Stream stream) {
  switch (stream) {
    case Stream::kCompute: return "compute";
    case Stream::kCodec: return "codec";
    case Stream::kLink: break;
  }
  return "link";
}

Json timeline_json(const PlannedSchedule& shown) {
  Json list = Json::array();
  for (const Interval& interval : shown.times.timeline)
    list.push_back({{"stream", stream_name(interval.stream)},
                    {"activity", activity_name(shown.plan, interval)},
                    {"index", interval.index},
                    {"begin_us", interval.begin_us},
                    {"end_us", interval.end_us}});
  return list;
}

Json schedule_json(const PlannedSchedule& row) {
  if (!row.status.ok()) return {{"schedule", row.name}, {"error", row.status.message()}};
  return {{"schedule", row.name},
          {"iteration_us", row.times.iteration_us},
          {"exposed_us", row.times.exposed_us},
          {"link_us", row.times.link_us},
          {"efficiency", row.times.efficiency()},
          {"operations", row.plan.operations.size()},
          {"why", row.plan.why}};
}

}  // namespace

std::string plan_json(const PlannedCluster& question, const PlanReport& report) {
  Json schedules = Json::array();
  for (const PlannedSchedule& row : report.schedules) schedules.push_back(schedule_json(row));
  const PlannedSchedule& shown = report.schedules[report.shown];
  Json object = {{"model", question.workload.name},
                 {"layers", question.workload.layers.size()},
                 {"gradient_bytes", question.workload.bytes()},
                 {"compute_us", question.workload.compute_us()},
                 {"nodes", question.cluster.network.nodes},
                 {"bits_per_second", question.bits_per_second},
                 {"latency_us", question.cluster.network.alpha_us},
                 {"codec", question.cluster.codec.name},
                 {"mode", question.mode.canonical},
                 {"shards", question.cluster.network.shards},
                 {"schedules", schedules},
                 {"recommended", report.schedules[report.recommended].name},
                 {"shown", shown.name},
                 {"timeline", timeline_json(shown)}};
  if (question.recorded) object["recorded_step_us"] = question.recorded->step_us;
  // A profile may name its model and layers in bytes that are no UTF-8.
  return object.dump(2, ' ', false, Json::error_handler_t::replace);
}

}  // namespace gradbus
