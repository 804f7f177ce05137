// The coordinator's address as a person writes it. Pure.
#pragma once

#include <string>

#include "common/status.h"

namespace gradbus {

inline constexpr int kCoordinatorPort = 7400;

// "HOST", "HOST:PORT", "[V6]", "[V6]:PORT" or "unix:PATH" as gRPC wants it: with a port. gRPC would
// take 443 where there is none, and try it for ever. GB-F100 for anything else; `option` names it.
Result<std::string> coordinator_endpoint(const std::string& text, const std::string& option);

}  // namespace gradbus
