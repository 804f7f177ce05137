// The daemons' log: spdlog on stderr, one line a record, levels trace to error. Control plane only;
// the hot path counts instead. The client library never logs.
#pragma once

#include <spdlog/spdlog.h>

#include <string>

#include "common/status.h"

namespace gradbus {

// Pattern: time, level letter, program name, message. Colour only on a terminal and without
// NO_COLOR. `level`: trace, debug, info, warn, error.
Status start_log(const std::string& program, const std::string& level);

}  // namespace gradbus
