// Reads a trace back and says where the time of each rank went. Pure.
//
//   compute      the rank's time without waits for other ranks
//   exposed      the time in which the rank waits for a round of a tensor
//   communication the time in which at least one of the rank's rounds is under way
//   hidden       communication that is not exposed
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "common/status.h"

namespace gradbus {

struct TraceEvent {
  int64_t pid = 0;
  std::string name;  // of the span: "wait", "send", or of a phase
  std::string tensor;
  bool of_rank = false;
  bool is_phase = false;
  double begin_us = 0;
  double end_us = 0;
  double busy_us = 0;  // of the span
  uint64_t round = 0;
  uint64_t bytes = 0;
};

struct Trace {
  std::string job;
  uint64_t dropped = 0;
  double clock_error_us = 0;
  std::map<int64_t, std::string> processes;  // by pid
  std::vector<TraceEvent> events;
};

// GB-F115 for text that is no trace of `gradbus trace`.
Result<Trace> parse_trace(const std::string& text, const std::string& path);

using Intervals = std::vector<std::pair<double, double>>;  // sorted, without overlap
Intervals merged(Intervals intervals);
double length_of(const Intervals& intervals);

struct RankSummary {
  int64_t pid = 0;
  std::string name;
  double wall_us = 0;  // from the first span to the last
  double compute_us = 0;
  double communication_us = 0;
  double exposed_us = 0;
  std::map<std::string, double> phases_us = {};  // forward, backward, step: the sum of each
  uint64_t steps = 0;                            // phases called "step"; 0: not known
  Intervals waits = {};
  Intervals flights = {};
  Intervals phases = {};

  double hidden_us() const { return communication_us - exposed_us; }
};

struct TensorSummary {
  std::string name;
  uint64_t rounds = 0;                         // of one rank
  uint64_t bytes = 0;                          // of a round
  double flight_us = 0;                        // mean over ranks and rounds
  double wait_us = 0;                          // the same
  std::map<std::string, double> work_us = {};  // of agents, mean over nodes and rounds
};

struct TraceSummary {
  std::vector<RankSummary> ranks;
  std::vector<TensorSummary> tensors;  // those with the longest waits first
};

TraceSummary summarize(const Trace& trace);

// For a terminal; at most `tensors_max` tensors.
std::string summary_text(const Trace& trace, const TraceSummary& summary, size_t tensors_max);
std::string summary_json(const Trace& trace, const TraceSummary& summary);
// A picture of compute against communication: the last `steps` steps of up to `ranks_max` ranks.
std::string summary_svg(const Trace& trace, const TraceSummary& summary, size_t steps,
                        size_t ranks_max);

}  // namespace gradbus
