// Errors of system calls. A process that has no descriptor left gets its own error, which names the
// limit: "Bad file descriptor" or "Too many open files" of a far call does not help anybody.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "common/status.h"

namespace gradbus {

// error(id, "<what>: <reason of errno>", next). EMFILE and ENFILE become GB-S220, whatever `id` is.
Status system_error(std::string_view id, const std::string& what, int reason,
                    std::string_view next = {});

// What to do about a bind() that failed for this reason; "": what the error says.
std::string_view bind_advice(int reason);

// GB-S220 when this process may open less files than a daemon needs to start. gRPC and the engine
// end the process where they get no descriptor, so daemons ask first.
Status check_daemon_files();
inline constexpr uint64_t kDaemonFilesMin = 64;

// How many descriptors this process may have open (RLIMIT_NOFILE).
uint64_t open_files_max();

}  // namespace gradbus
