// Which rank starts where and which daemon serves it, decided before anything is started. The only
// thing read from the machine is which agent answers; the rest is pure.
#pragma once

#include <string>
#include <vector>

#include "cli/launch/rank_layout.h"
#include "cli/options/host_list.h"
#include "cli/options/run_options.h"
#include "common/status.h"

namespace gradbus {

struct LaunchPlan {
  std::string job;
  int ranks = 0;
  std::vector<Host> blocks;       // by RankPlace::block; blocks without ranks are left out
  std::vector<RankPlace> places;  // by rank
  bool embedded = false;          // one embedded agent per block
  std::string socket;             // of the agent that serves the local ranks; "" when embedded

  int local_size(int block) const;  // ranks of that block
  int ranks_on_this_machine() const;
};

// `options` have passed check_run_options(). `socket`: the local agent that answers, or "".
// GB-H200, GB-J401, GB-A300 when they cannot be met.
Result<LaunchPlan> make_plan(const RunOptions& options, const std::string& socket);

// "run-" and four pronounceable syllables, e.g. "run-kobatilu"; different each time.
std::string random_job_name();

}  // namespace gradbus
