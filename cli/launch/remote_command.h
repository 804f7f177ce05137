// What ssh shall run on another host, as one line of POSIX shell. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "cli/process/rank_env.h"

namespace gradbus {

// `word` so that any POSIX shell reads it as exactly these bytes.
std::string shell_quote(std::string_view word);

// A script that enters `directory`, sets `variables`, runs `command` in a session of its own and
// ends with its exit status. ssh does not kill what it started when it dies itself, so the script
// watches its standard input: when that ends, it sends SIGTERM to the session, SIGKILL 2 s later.
// `local_size`: ranks on that host; sets OMP_NUM_THREADS to cores / local_size unless it is set.
std::string remote_script(const std::string& directory, const Variables& variables,
                          const std::vector<std::string>& command, int local_size);

}  // namespace gradbus
