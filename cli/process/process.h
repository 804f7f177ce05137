// A running child with its output pipes: a rank or an embedded daemon. Main thread only.
//
// Its life: running -> settling (it has ended; its pipes are read to their end, for at most a
// second when a child of its own holds them open) -> done (its whole process group is gone).
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/process/child.h"
#include "cli/process/orphan_guard.h"
#include "cli/process/poll_set.h"
#include "cli/terminal/output_stream.h"
#include "common/clock.h"

namespace gradbus {

struct OutputPipe {
  Fd fd;
  std::unique_ptr<OutputStream> stream;
};

class Process {
 public:
  Process(std::string name, Child child, std::vector<OutputPipe> pipes, OrphanGuard& guard);
  Process(Process&&) = default;
  Process& operator=(Process&&) = default;

  // Descriptor that stays open until the process has ended: a remote rank's life line.
  void hold(Fd fd) { kept_open_ = std::move(fd); }

  void watch(PollSet& set, bool outputs_paused) const;
  // `hold_output`: unread output is kept for a reader that is slow, however long that takes.
  void serve(const PollSet& set, Nanos now, bool hold_output);
  // When serve() must be called next though nothing is ready, or kNever.
  Nanos deadline() const;
  // To the whole process group; nothing once it is done.
  void signal(int number) const;

  bool running() const { return state_ == State::kRunning; }
  bool done() const { return state_ == State::kDone; }
  // True once: the process has ended since the last call.
  bool take_ended();
  const ExitState& exit() const { return exit_; }
  const std::string& name() const { return name_; }
  pid_t pid() const { return child_.pid; }

 private:
  enum class State { kRunning, kSettling, kDone };

  void read_pipe(OutputPipe& pipe);
  bool outputs_open() const;
  void finish();

  std::string name_;
  Child child_;
  std::vector<OutputPipe> pipes_;
  OrphanGuard* guard_;
  Fd kept_open_;
  State state_ = State::kRunning;
  bool ended_unseen_ = false;
  ExitState exit_;
  Nanos settle_until_ = 0;
};

}  // namespace gradbus
