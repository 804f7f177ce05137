// Where the shards of a job are, and what part of its tensors each of them holds. Pure.
//
// Two daemons are on one network interface when their data addresses have the same host. A daemon
// with a loopback address counts as alone. Bandwidths are those of the option --bandwidth, never
// measured ones. Measured ones vary, so a job would get another placement at each start. Bandwidths
// within a quarter of each other count as equal. An unknown one counts as the median of the others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/coordinator/members/membership.h"

namespace gradbus {

struct ShardPlacement {
  std::vector<uint32_t> pattern;    // of proto/placement.h; empty: equal parts
  std::vector<double> shares;       // by shard, of the pattern
  std::vector<std::string> beside;  // by shard: the first agent on its interface; "": it is alone
  std::string why;                  // for the log
};

// Of infos that have addresses for `transport`. No shards: nothing. `equal`: equal parts, for the
// user wants it so.
ShardPlacement place_shards(const AgentInfos& agents, const AgentInfos& shards,
                            const std::string& transport, bool equal = false);

// Bandwidths as they count: within a quarter of a larger one is that one, 0 is the median of the
// others, or 1.
std::vector<double> counted_bandwidths(const std::vector<double>& told);

}  // namespace gradbus
