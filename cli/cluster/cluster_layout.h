// Which embedded daemon is behind which link: --shards, --shards-on, --link and --link-of as nodes
// of one network. Pure; any thread.
//
// Nodes 0 .. agents - 1 are the agents'; each shard that is not beside an agent has one of its own
// after them.
#pragma once

#include <string>
#include <vector>

#include "cli/options/link_spec.h"
#include "cli/options/run_options.h"
#include "common/status.h"

namespace gradbus {

struct ClusterLayout {
  int agents = 1;
  std::vector<int> shard_nodes;  // by shard
  std::vector<LinkSpec> links;   // by node; empty: all on the machine's loopback
};

// `options` have passed check_run_options(); `agents` are started. GB-H200 names what is wrong, and
// what was probably meant.
Result<ClusterLayout> make_layout(const RunOptions& options, int agents);

}  // namespace gradbus
