#include "cli/terminal/standard_output.h"

#include <signal.h>

#include <cerrno>
#include <cstdio>

#include "cli/exit_codes.h"
#include "common/system_error.h"

namespace gradbus {

namespace {

// Some failed writes leave their bytes in the buffer, others do not and lose the reason, too. So a
// line end is written: on a disk that is still full it fails for the same reason.
int reason_of_failure(int reason) {
  if (reason != 0) return reason;
  std::clearerr(stdout);
  errno = 0;
  std::fputc('\n', stdout);
  std::fflush(stdout);
  return errno != 0 ? errno : EIO;
}

}  // namespace

int finish_output(int exit_code) {
  errno = 0;
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  const Status lost = output_error(reason_of_failure(errno));
  if (!lost.ok()) std::fprintf(stderr, "%s\n", lost.message().c_str());
  if (exit_code != kExitOk) return exit_code;
  return lost.ok() ? kExitSignal + SIGPIPE : kExitFailed;
}

Status output_error(int reason) {
  if (reason == EPIPE) return {};
  return system_error("F117", "standard output cannot be written", reason);
}

}  // namespace gradbus
