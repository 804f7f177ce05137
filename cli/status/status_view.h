// What `gradbus status` shows, made from the coordinator's reply. Pure.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

// An agent that has been silent this long is not well (the coordinator's lease is of this order).
inline constexpr uint64_t kSilentMsMax = 3'000;

struct StatusView {
  std::string address;   // the coordinator's
  size_t rows_max = 0;   // lines of text; 0: all. Long tables are cut, their important rows stay.
  bool one_job = false;  // `gradbus status --job`: an ended job is shown like a running one
  bool tensors = false;  // `--tensors`: how each one is exchanged, and why
};

// First the problems, then nodes and running jobs, last the ends of jobs. At most 80 columns.
std::string status_text(const v1::StatusReply& reply, const StatusView& view);

// The same as one JSON object, keys as in coordinator.proto, plus "healthy" and "coordinator".
std::string status_json(const v1::StatusReply& reply, const std::string& address);

// What is wrong with the cluster now, a sentence each: lost and silent nodes, lost shards, ranks
// that are late. How jobs have ended is no problem of the cluster.
std::vector<std::string> problems(const v1::StatusReply& reply);

}  // namespace gradbus
