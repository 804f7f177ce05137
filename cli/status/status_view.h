// What `gradbus status` shows, made from the coordinator's reply. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradbus/v1/coordinator.pb.h"
#include "server/status/problems.h"
#include "server/status/status_json.h"

namespace gradbus {

struct StatusView {
  std::string address;   // the coordinator's
  size_t rows_max = 0;   // lines of text; 0: all. Long tables are cut, their important rows stay.
  bool one_job = false;  // `gradbus status --job`: an ended job is shown like a running one
  bool tensors = false;  // `--tensors`: how each one is exchanged, and why
};

// First the problems, then nodes and running jobs, last the ends of jobs. At most 80 columns.
std::string status_text(const v1::StatusReply& reply, const StatusView& view);

}  // namespace gradbus
