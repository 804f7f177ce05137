#include "cli/process/system_tool.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "cli/process/child.h"
#include "cli/process/rank_env.h"
#include "common/system_error.h"

namespace gradbus {
namespace {

constexpr size_t kOutputBytesMax = 400;

Status failed(const std::string& what) { return Status(Code::kUnavailable, what); }

// A file in memory instead of a pipe: nobody has to feed or empty it while the program runs.
Fd memory_file(const std::string& content) {
  Fd file(memfd_create("gradbus-tool", MFD_CLOEXEC));
  const auto size = static_cast<ssize_t>(content.size());
  if (!file.valid() || write(file.get(), content.data(), content.size()) != size) return Fd();
  if (lseek(file.get(), 0, SEEK_SET) != 0) return Fd();
  return file;
}

// The beginning of what it wrote, as one line.
std::string output_of(const Fd& file) {
  char text[kOutputBytesMax];
  const ssize_t got = pread(file.get(), text, sizeof(text), 0);
  std::string line(text, static_cast<size_t>(std::max<ssize_t>(got, 0)));
  while (!line.empty() && line.back() == '\n') line.pop_back();
  std::replace(line.begin(), line.end(), '\n', ' ');
  return line;
}

bool ends_by(const Child& child, Nanos until, ExitState* state) {
  pollfd end{child.end.get(), POLLIN, 0};
  const Nanos left = std::max<Nanos>(0, until - monotonic_now());
  // Signals are blocked here (SignalQueue), so nothing else ends the wait.
  poll(&end, 1, static_cast<int>(left / kMillisecond));
  return has_ended(child, state);
}

}  // namespace

Status run_tool(const SystemTool& tool, Nanos until) {
  const Fd input = memory_file(tool.input);
  const Fd output = memory_file("");
  if (!input.valid() || !output.valid()) return system_error("H203", "no file in memory", errno);
  ChildSpec spec{tool.words, own_environment()};
  spec.stdin_fd = input.get();
  spec.stdout_fd = spec.stderr_fd = output.get();
  spec.ready_fd = tool.passed_fd;
  spec.netns_fd = tool.netns_fd;
  spec.death_signal = SIGKILL;
  Result<Child> child = start_child(spec);
  if (!child.ok()) return child.status();
  ExitState state;
  const bool ended = ends_by(child.value(), until, &state);
  bury_by(child.value(), monotonic_now());
  if (!ended) return failed(tool.words.front() + " did not end in time and was killed");
  if (state.ok()) return {};
  return failed(tool.words.front() + " ended with " + state.text() + ": " + output_of(output));
}

}  // namespace gradbus
