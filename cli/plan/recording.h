// What a job has recorded about itself: the layers of a profile, and how it ran. `gradbus run
// --record FILE` and `gradbus plan --profile` make such files; the lowest rank writes them.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "common/status.h"
#include "server/scheduling/workload.h"

namespace gradbus {

// The part "recorded" of the file.
struct RecordedJob {
  uint32_t ranks = 1;
  uint32_t nodes = 1;
  std::string schedule;
  double step_us = 0;  // of the slowest rank, waits included
  // Of an all-reduce of m bytes, as the job measured it: startup + m * byte. 0: one node.
  double startup_us = 0;
  double byte_ns = 0;
};

struct Recording {
  scheduling::Workload workload;
  RecordedJob job;
};

// `where` is the file, for messages. GB-F102 for a file that is no recording, or is cut short.
Result<Recording> parse_recording(const std::string& text, const std::string& where);

// Runs a program with GRADBUS_RECORD, and returns what it recorded: a job of one rank. GB-H201 when
// it cannot be started, GB-F102 when it fails or records nothing.
Result<std::string> record_program(const std::vector<std::string>& command);

}  // namespace gradbus
