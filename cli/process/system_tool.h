// Runs a short program of the operating system (ip, tc) to its end. Main thread only.
#pragma once

#include <string>
#include <vector>

#include "common/clock.h"
#include "common/status.h"

namespace gradbus {

struct SystemTool {
  std::vector<std::string> words;  // the program by its path
  std::string input;               // what it reads
  int netns_fd = -1;               // the network namespace it runs in; -1: this process's
  int passed_fd = -1;              // becomes kReadyFd in it, when given
};

// Ok when it ended with status 0 before `until`. Otherwise the message says how it ended and what
// it wrote, in one line without a number: the caller knows what it means.
Status run_tool(const SystemTool& tool, Nanos until);

}  // namespace gradbus
