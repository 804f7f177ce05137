// Child processes: start one in a process group of its own, read how it ended. Main thread only
// (the parent-death signal follows the thread that forked).
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/fd.h"
#include "common/status.h"

namespace gradbus {

struct ChildSpec {
  std::vector<std::string> words;        // program and arguments; searched on PATH
  std::vector<std::string> environment;  // NAME=VALUE each
  int stdin_fd = -1;                     // -1: /dev/null
  int stdout_fd = -1;
  int stderr_fd = -1;
  int ready_fd = -1;     // becomes kReadyFd in the child, when given
  int netns_fd = -1;     // the network namespace it runs in, when given; -1: this process's
  int death_signal = 0;  // what it gets when this process dies
};

inline constexpr int kReadyFd = 3;

struct Child {
  pid_t pid = -1;  // also the number of its process group
  Fd end;          // readable when it has ended
};

// GB-H201 when the program cannot be started, with the system's reason. All other descriptors of
// this process are close-on-exec, and signals are as a shell would leave them.
Result<Child> start_child(const ChildSpec& spec);

// Readable when the child `pid` has ended: a pidfd, or an eventfd of a thread that waits for it
// where the system refuses pidfd_open.
Fd watch_child(pid_t pid);

struct ExitState {
  int code = 0;  // when signal is 0
  int signal = 0;

  bool ok() const { return code == 0 && signal == 0; }
  // As a shell reports it: 128 + signal for a signal.
  int as_shell() const { return signal != 0 ? 128 + signal : code; }
  // "exit status 3", "signal 9 (Killed)"
  std::string text() const;
};

// True when the child has ended; it stays a zombie, so its number and its group's stay its own.
bool has_ended(const Child& child, ExitState* state);
// Takes the zombie away; the number may be used by others from now on.
void bury(const Child& child);
// Waits for the end until `deadline`, then kills; leaves nothing.
void bury_by(const Child& child, int64_t deadline);

struct Pipe {
  Fd read;
  Fd write;
};
// Both ends close-on-exec. kForPolling: the read end, ours, is non-blocking; kForChild: it is not,
// as a child expects of its input.
enum class PipeUse { kForPolling, kForChild };
Result<Pipe> make_pipe(PipeUse use);

}  // namespace gradbus
