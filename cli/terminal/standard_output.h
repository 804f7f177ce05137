// The end of a command's standard output. Main thread, once.
#pragma once

#include "common/status.h"

namespace gradbus {

// Writes what is still in stdout's buffer. The exit code of the command: `exit_code`, if all that
// it printed has been written. Otherwise a failure, with a line on stderr (GB-F117), unless the
// reader of a pipe has gone: `| head -1` ends a command quietly, as SIGPIPE would.
int finish_output(int exit_code);

// GB-F117 for a write to stdout that has failed with this errno; ok if only the reader has gone.
Status output_error(int reason);

}  // namespace gradbus
