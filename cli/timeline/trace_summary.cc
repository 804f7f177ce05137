#include "cli/timeline/trace_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/timeline/trace_file.h"
#include "common/errors.h"

namespace gradbus {
namespace {

using Json = nlohmann::ordered_json;

Status not_a_trace(const std::string& path, const std::string& why) {
  return error("F115", path + " is no trace that gradbus has written: " + why,
               "write one: gradbus run --timeline FILE, or gradbus trace JOB -o FILE");
}

TraceEvent event_of(const Json& json) {
  TraceEvent event;
  event.pid = json.at("pid").get<int64_t>();
  event.of_rank = event.pid < kAgentPids;
  event.name = json.at("name").get<std::string>();
  event.is_phase = json.at("tid").get<int64_t>() == kPhaseRow;
  event.begin_us = json.at("ts").get<double>();
  event.end_us = event.begin_us + json.at("dur").get<double>();
  event.busy_us = json.at("dur").get<double>();
  if (const auto args = json.find("args"); args != json.end()) {
    event.tensor = args->value("tensor", "");
    event.round = args->value("round", uint64_t{0});
    event.bytes = args->value("bytes", uint64_t{0});
    event.busy_us = args->value("busy_us", event.busy_us);
  }
  return event;
}

void take_event(const Json& json, Trace& trace) {
  const auto& kind = json.at("ph").get_ref<const std::string&>();
  if (kind == "X") trace.events.push_back(event_of(json));
  if (kind == "M" && json.at("name") == "process_name")
    trace.processes[json.at("pid").get<int64_t>()] = json.at("args").at("name").get<std::string>();
}

void take_other(const Json& json, Trace& trace) {
  trace.job = json.at("job").get<std::string>();
  trace.dropped = json.at("dropped").get<uint64_t>();
  trace.clock_error_us = json.at("clock_error_us").get<double>();
}

void summarize_rank(const TraceEvent& event, RankSummary& rank) {
  const std::pair<double, double> interval{event.begin_us, event.end_us};
  if (event.is_phase) {
    rank.phases.push_back(interval);
    rank.phases_us[event.name] += event.end_us - event.begin_us;
    rank.steps += event.name == "step" ? 1 : 0;
  } else if (event.name == "wait") {
    rank.waits.push_back(interval);
  } else if (event.name == "in flight") {
    rank.flights.push_back(interval);
  }
}

struct TensorTotals {
  std::set<std::pair<int64_t, uint64_t>> rounds = {};  // (rank, round)
  uint64_t bytes = 0;
  double flight_us = 0;
  double wait_us = 0;
  std::set<std::pair<int64_t, uint64_t>> node_rounds = {};
  std::map<std::string, double> work_us = {};
};

void add_to_tensor(const TraceEvent& event, TensorTotals& totals) {
  if (!event.of_rank) {
    totals.node_rounds.emplace(event.pid, event.round);
    totals.work_us[event.name] += event.busy_us;
    return;
  }
  totals.rounds.emplace(event.pid, event.round);
  if (event.name == "in flight") {
    totals.flight_us += event.end_us - event.begin_us;
    totals.bytes = std::max(totals.bytes, event.bytes);
  }
  if (event.name == "wait") totals.wait_us += event.end_us - event.begin_us;
}

TensorSummary summary_of(const std::string& name, const TensorTotals& totals) {
  std::set<int64_t> ranks;
  for (const auto& [rank, round] : totals.rounds) ranks.insert(rank);
  const auto per = [](double sum, size_t count) {
    return count == 0 ? 0 : sum / static_cast<double>(count);
  };
  TensorSummary tensor{name, totals.rounds.size() / std::max<size_t>(ranks.size(), 1), totals.bytes,
                       per(totals.flight_us, totals.rounds.size()),
                       per(totals.wait_us, totals.rounds.size())};
  for (const auto& [kind, sum] : totals.work_us)
    tensor.work_us[kind] = per(sum, totals.node_rounds.size());
  return tensor;
}

}  // namespace

// An event a line, as TraceFile writes them: a long trace would need several times its size as one
// tree of JSON.
Result<Trace> parse_trace(const std::string& text, const std::string& path) {
  constexpr std::string_view kEnd = "],\"otherData\":";
  if (text.find("\"traceEvents\":[") > text.find('\n'))
    return not_a_trace(path, "its first line does not begin a list of events");
  Trace trace;
  bool ended = false;
  try {
    for (size_t at = text.find('\n') + 1; at < text.size() && !ended;) {
      const size_t end = std::min(text.find('\n', at), text.size());
      std::string_view line(text.data() + at, end - at);
      at = end + 1;
      ended = line.starts_with(kEnd);
      if (ended) line = line.substr(kEnd.size(), line.size() - kEnd.size() - 1);
      if (line.ends_with(',')) line.remove_suffix(1);
      if (line.empty()) continue;
      const Json json = Json::parse(line);
      ended ? take_other(json, trace) : take_event(json, trace);
    }
  } catch (const Json::exception& wrong) {
    return not_a_trace(path, wrong.what());
  }
  if (!ended) return not_a_trace(path, "it was cut off");
  return trace;
}

Intervals merged(Intervals intervals) {
  std::sort(intervals.begin(), intervals.end());
  Intervals result;
  for (const auto& [begin, end] : intervals) {
    if (!result.empty() && begin <= result.back().second) {
      result.back().second = std::max(result.back().second, end);
    } else {
      result.emplace_back(begin, end);
    }
  }
  return result;
}

double length_of(const Intervals& intervals) {
  double length = 0;
  for (const auto& [begin, end] : intervals) length += end - begin;
  return length;
}

TraceSummary summarize(const Trace& trace) {
  std::map<int64_t, RankSummary> ranks;
  std::map<int64_t, std::pair<double, double>> spans;
  std::map<std::string, TensorTotals> tensors;
  for (const TraceEvent& event : trace.events) {
    if (!event.tensor.empty()) add_to_tensor(event, tensors[event.tensor]);
    if (!event.of_rank) continue;
    summarize_rank(event, ranks[event.pid]);
    const auto [at, is_new] = spans.try_emplace(event.pid, event.begin_us, event.end_us);
    at->second.first = std::min(at->second.first, event.begin_us);
    at->second.second = std::max(at->second.second, event.end_us);
  }
  TraceSummary summary;
  for (auto& [pid, rank] : ranks) {
    rank.pid = pid;
    const auto name = trace.processes.find(pid);
    rank.name = name == trace.processes.end() ? "rank " + std::to_string(pid) : name->second;
    rank.waits = merged(std::move(rank.waits));
    rank.flights = merged(std::move(rank.flights));
    rank.phases = merged(std::move(rank.phases));
    rank.wall_us = spans[pid].second - spans[pid].first;
    rank.exposed_us = length_of(rank.waits);
    Intervals both = rank.flights;
    both.insert(both.end(), rank.waits.begin(), rank.waits.end());
    rank.communication_us = length_of(merged(std::move(both)));
    rank.compute_us = rank.wall_us - rank.exposed_us;
    summary.ranks.push_back(std::move(rank));
  }
  for (const auto& [name, totals] : tensors) summary.tensors.push_back(summary_of(name, totals));
  std::stable_sort(summary.tensors.begin(), summary.tensors.end(),
                   [](const TensorSummary& a, const TensorSummary& b) {
                     return a.wait_us * static_cast<double>(a.rounds) >
                            b.wait_us * static_cast<double>(b.rounds);
                   });
  return summary;
}

}  // namespace gradbus
