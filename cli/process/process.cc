#include "cli/process/process.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "cli/process/stop_ladder.h"

namespace gradbus {
namespace {

constexpr size_t kReadBytes = size_t{64} << 10;  // a full pipe
constexpr Nanos kSettle = kSecond;

}  // namespace

Process::Process(std::string name, Child child, std::vector<OutputPipe> pipes, OrphanGuard& guard)
    : name_(std::move(name)), child_(std::move(child)), pipes_(std::move(pipes)), guard_(&guard) {
  guard_->watch_group(child_.pid);
}

void Process::watch(PollSet& set, bool outputs_paused) const {
  if (running()) set.watch(child_.end.get(), POLLIN);
  if (outputs_paused) return;
  for (const OutputPipe& pipe : pipes_) set.watch(pipe.fd.get(), POLLIN);
}

void Process::serve(const PollSet& set, Nanos now, bool hold_output) {
  for (OutputPipe& pipe : pipes_)
    if (set.events(pipe.fd.get()) != 0) read_pipe(pipe);
  if (running() && set.events(child_.end.get()) != 0 && has_ended(child_, &exit_)) {
    state_ = State::kSettling;
    ended_unseen_ = true;
    settle_until_ = now + kSettle;
  }
  const bool settled = !outputs_open() || (now >= settle_until_ && !hold_output);
  if (state_ == State::kSettling && settled) finish();
}

Nanos Process::deadline() const { return state_ == State::kSettling ? settle_until_ : kNever; }

void Process::signal(int number) const {
  if (done()) return;
  kill(-child_.pid, number);
  if (number == SIGTERM) kill(-child_.pid, SIGCONT);  // a stopped process would not notice
}

bool Process::take_ended() { return std::exchange(ended_unseen_, false); }

void Process::read_pipe(OutputPipe& pipe) {
  char buffer[kReadBytes];
  const ssize_t got = read(pipe.fd.get(), buffer, sizeof(buffer));
  if (got > 0) return pipe.stream->push({buffer, static_cast<size_t>(got)});
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  pipe.stream->finish();
  pipe.fd.reset();
}

bool Process::outputs_open() const {
  return std::any_of(pipes_.begin(), pipes_.end(),
                     [](const OutputPipe& pipe) { return pipe.fd.valid(); });
}

// The leader is still a zombie here, so the group's number cannot have become somebody else's.
void Process::finish() {
  for (OutputPipe& pipe : pipes_) {
    if (!pipe.fd.valid()) continue;
    pipe.stream->finish();
    pipe.fd.reset();
  }
  kill(-child_.pid, SIGKILL);
  guard_->forget_group(child_.pid);
  bury(child_);
  kept_open_.reset();
  child_.end.reset();
  state_ = State::kDone;
}

}  // namespace gradbus
