// Starts one rank of a plan: here, or through ssh on its host. Main thread only.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/link_lab.h"
#include "cli/launch/launch_plan.h"
#include "cli/launch/torch_address.h"
#include "cli/options/run_options.h"
#include "cli/process/orphan_guard.h"
#include "cli/process/process.h"
#include "cli/terminal/output_stream.h"
#include "cli/terminal/screen.h"
#include "common/status.h"

namespace gradbus {

struct RankStarter {
  const LaunchPlan& plan;
  const RunOptions& options;
  Screen& screen;
  OrphanGuard& guard;
  std::vector<std::string> sockets;  // by block, for local ranks
  std::string coordinator;           // "" : unknown
  int cores = 1;
  const LinkLab* lab = nullptr;  // where the ranks of block i are in agent i's namespace
  TorchAddress torch = torch_address(plan);

  // GB-H200 (output file, pipes), GB-H201 (program).
  Result<Process> start(const RankPlace& place) const;
};

// Cores this process may use.
int usable_cores();

}  // namespace gradbus
