// Whether a coordinator can keep its state in a folder. Start-up only.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"

namespace gradbus {

inline constexpr uint64_t kStateBytesMax = 1 << 20;

// Makes the folder, and a file of kStateBytesMax for a moment. GB-F116 with the reason.
Status check_state_folder(const std::string& folder);

}  // namespace gradbus
