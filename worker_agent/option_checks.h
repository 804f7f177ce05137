// Parses the agent's text options. GB-F100 for a text that is not allowed. Pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>

#include "common/segment.h"
#include "common/status.h"

namespace gradbus {

// As the coordinator checks it in Hello.
Status check_node_name(const std::string& name);
Result<mode_t> parse_socket_mode(const std::string& text);
Result<HugePages> parse_huge_pages(const std::string& text);
// In bit/s; 0: unknown.
Result<uint64_t> parse_bandwidth(const std::string& text);

}  // namespace gradbus
