// Where the ranks of a job find the store of torch.distributed: MASTER_ADDR and MASTER_PORT.
#pragma once

#include <string>

#include "cli/launch/launch_plan.h"

namespace gradbus {

struct TorchAddress {
  std::string host;
  int port = 0;
};

// On this machine a port that is free now. On another machine, where nobody can look, a port from
// 29500 to 39499 that depends on the job's name. Reads this machine's name and ports.
TorchAddress torch_address(const LaunchPlan& plan);

}  // namespace gradbus
