// What is wrong with a cluster now, for people and programs. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gradbus/v1/coordinator.pb.h"

namespace gradbus {

// An agent that has been silent this long is not well (the coordinator's lease is of this order).
inline constexpr uint64_t kSilentMsMax = 3'000;

// A sentence each: lost and silent nodes, lost shards, ranks that are late. How jobs have ended is
// no problem of the cluster, and a drained node is none.
std::vector<std::string> problems(const v1::StatusReply& reply);

}  // namespace gradbus
