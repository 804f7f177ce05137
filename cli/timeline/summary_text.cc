// The summary of a trace as text and as JSON.
#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "cli/terminal/text_table.h"
#include "cli/timeline/trace_summary.h"
#include "common/text/help_text.h"
#include "common/units.h"

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;

std::string duration_text(double us) {
  return nanoseconds_text(static_cast<uint64_t>(std::max(us, 0.0) * 1000));
}

std::string percent(double part, double whole) {
  return whole <= 0 ? "-" : std::to_string(std::lround(100 * part / whole)) + " %";
}

std::string work_text(const TensorSummary& tensor) {
  std::string text;
  for (const auto& [kind, us] : tensor.work_us) {
    if (us < 1) continue;
    text += (text.empty() ? "" : ", ") + kind + " " + duration_text(us);
  }
  return text;
}

std::string rank_table(const TraceSummary& summary) {
  TextTable table({{"rank", 24},
                   {"wall", 10, true},
                   {"compute", 10, true},
                   {"communication", 13, true},
                   {"exposed", 10, true},
                   {"hidden", 7, true}});
  for (const RankSummary& rank : summary.ranks)
    table.add({rank.name, duration_text(rank.wall_us), duration_text(rank.compute_us),
               duration_text(rank.communication_us), duration_text(rank.exposed_us),
               percent(rank.hidden_us(), rank.communication_us)});
  return table.text();
}

std::string phase_lines(const TraceSummary& summary) {
  std::string text;
  for (const RankSummary& rank : summary.ranks) {
    if (rank.steps == 0) continue;
    const auto steps = static_cast<double>(rank.steps);
    text += "  " + rank.name + ": " + std::to_string(rank.steps) + " steps";
    for (const char* phase : {"forward", "backward", "step"})
      if (const auto at = rank.phases_us.find(phase); at != rank.phases_us.end())
        text += ", " + std::string(phase) + " " + duration_text(at->second / steps);
    text += ", exposed " + duration_text(rank.exposed_us / steps) + " each\n";
  }
  return text;
}

std::string tensor_table(const TraceSummary& summary, size_t tensors_max) {
  TextTable table({{"tensor", 24},
                   {"rounds", 7, true},
                   {"bytes", 8, true},
                   {"in flight", 9, true},
                   {"wait", 9, true}});
  const size_t shown = std::min(tensors_max, summary.tensors.size());
  for (size_t i = 0; i < shown; ++i) {
    const TensorSummary& tensor = summary.tensors[i];
    table.add({tensor.name, std::to_string(tensor.rounds), bytes_text(tensor.bytes),
               duration_text(tensor.flight_us), duration_text(tensor.wait_us)});
  }
  std::string text = table.text();
  for (size_t i = 0; i < shown; ++i)
    if (const std::string work = work_text(summary.tensors[i]); !work.empty())
      text += wrapped("agents, " + summary.tensors[i].name + ": " + work, 2);
  if (shown < summary.tensors.size())
    text += "  and " + std::to_string(summary.tensors.size() - shown) + " more (--tensors N)\n";
  return text;
}

}  // namespace

std::string summary_text(const Trace& trace, const TraceSummary& summary, size_t tensors_max) {
  std::string text = "job " + trace.job + ": " + std::to_string(trace.events.size()) + " spans";
  if (trace.dropped > 0)
    text += "; " + std::to_string(trace.dropped) + " spans found no room and are missing";
  text += "\n\n" + rank_table(summary);
  if (const std::string phases = phase_lines(summary); !phases.empty()) text += "\n" + phases;
  if (!summary.tensors.empty())
    text += "\nmean of a round, the longest waits first\n" + tensor_table(summary, tensors_max);
  return text;
}

std::string summary_json(const Trace& trace, const TraceSummary& summary) {
  Json json{{"job", trace.job},         {"spans", trace.events.size()},
            {"dropped", trace.dropped}, {"clock_error_us", trace.clock_error_us},
            {"ranks", Json::array()},   {"tensors", Json::array()}};
  for (const RankSummary& rank : summary.ranks)
    json["ranks"].push_back({{"name", rank.name},
                             {"wall_us", rank.wall_us},
                             {"compute_us", rank.compute_us},
                             {"communication_us", rank.communication_us},
                             {"exposed_us", rank.exposed_us},
                             {"hidden_us", rank.hidden_us()},
                             {"steps", rank.steps},
                             {"phases_us", rank.phases_us}});
  for (const TensorSummary& tensor : summary.tensors)
    json["tensors"].push_back({{"name", tensor.name},
                               {"rounds", tensor.rounds},
                               {"bytes", tensor.bytes},
                               {"flight_us", tensor.flight_us},
                               {"wait_us", tensor.wait_us},
                               {"agents_us", tensor.work_us}});
  return json.dump(2) + "\n";
}

}  // namespace gradbus
