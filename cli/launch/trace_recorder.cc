#include "cli/launch/trace_recorder.h"

#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <utility>

#include "cli/process/rank_env.h"
#include "common/clock.h"

namespace gradbus {
namespace {

constexpr Nanos kJobEnd = 3 * kSecond;   // it hears of the end within a second or two
constexpr Nanos kFinish = 10 * kSecond;  // after SIGTERM, for a file that is long

}  // namespace

Result<std::unique_ptr<TraceRecorder>> TraceRecorder::start(const std::string& file,
                                                            const std::string& job,
                                                            const std::string& coordinator,
                                                            const std::string& token_file,
                                                            int netns_fd) {
  ChildSpec spec;
  spec.words = {"/proc/self/exe", "trace",    job, "--wait", "--to-the-end", "-o", file,
                "--coordinator",  coordinator};
  if (!token_file.empty()) spec.words.insert(spec.words.end(), {"--token-file", token_file});
  spec.environment = own_environment();
  spec.stdout_fd = STDERR_FILENO;
  spec.stderr_fd = STDERR_FILENO;
  spec.netns_fd = netns_fd;
  spec.death_signal = SIGTERM;
  Result<Child> child = start_child(spec);
  if (!child.ok()) return child.status();
  return std::unique_ptr<TraceRecorder>(new TraceRecorder(child.take()));
}

void TraceRecorder::finish() {
  if (child_.pid < 0) return;
  pollfd end{.fd = child_.end.get(), .events = POLLIN, .revents = 0};
  // Without a job it would wait for ever: a signal makes it end the file.
  if (poll(&end, 1, static_cast<int>(kJobEnd / kMillisecond)) <= 0) kill(child_.pid, SIGTERM);
  bury_by(child_, monotonic_now() + kFinish);
  child_ = Child();
}

}  // namespace gradbus
