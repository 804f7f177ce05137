#include "cli/launch/launched_job.h"

#include <signal.h>
#include <string.h>

#include <algorithm>

#include "cli/exit_codes.h"
#include "cli/terminal/standard_output.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr int kExitSshFailed = 255;  // ssh's own: the host is unknown, unreachable or refuses

std::string running_ranks(const std::vector<Process>& ranks) {
  std::string names;
  for (const Process& rank : ranks)
    if (rank.running()) names += (names.empty() ? "" : ", ") + rank.name();
  return names;
}

}  // namespace

LaunchedJob::LaunchedJob(const RankStarter& starter, Screen& screen, SignalQueue& signals,
                         EmbeddedCluster* cluster, TraceRecorder* trace)
    : starter_(starter), screen_(screen), signals_(signals), cluster_(cluster), trace_(trace) {}

int LaunchedJob::run() {
  start_ranks();
  while (!all_done()) turn();
  if (trace_ != nullptr) trace_->finish();
  if (cluster_ != nullptr) cluster_->stop();
  drain_screen();
  take_signals();  // what was written last may be lost
  screen_.flush();
  if (exit_code_ != 0) return exit_code_;
  if (signals_.first() != 0) return kExitSignal + signals_.first();
  return output_lost_ ? kExitSignal + SIGPIPE : kExitOk;
}

void LaunchedJob::start_ranks() {
  for (const RankPlace& place : starter_.plan.places) {
    take_signals();
    if (ladder_.stopping()) return;
    Result<Process> rank = starter_.start(place);
    if (!rank.ok()) {
      screen_.note(rank.status().message());
      fail_with(kExitNotFound);
      return ladder_.request(monotonic_now());
    }
    ranks_.push_back(rank.take());
    if (starter_.options.verbose)
      screen_.note("gradbus run: " + ranks_.back().name() + " is pid " +
                   std::to_string(ranks_.back().pid()) + " on " +
                   starter_.plan.blocks[place.block].name);
  }
}

void LaunchedJob::turn() {
  const bool paused = screen_.is_full();
  fill_poll_set(paused);
  poll_set_.wait_until(next_deadline());
  const Nanos now = monotonic_now();
  take_signals();
  // Once somebody wants the end, output that its reader does not take holds nothing up.
  const bool hold_output = paused && signals_.first() == 0;
  for (Process& rank : ranks_) rank.serve(poll_set_, now, hold_output);
  if (cluster_ != nullptr) cluster_->serve(poll_set_, now);
  take_deaths();
  press(ladder_.due(now));
  screen_.flush();
}

void LaunchedJob::fill_poll_set(bool paused) {
  poll_set_.clear();
  poll_set_.watch(signals_.fd(), POLLIN);
  for (const Process& rank : ranks_) rank.watch(poll_set_, paused);
  if (cluster_ != nullptr) cluster_->watch(poll_set_);
  for (Sink* sink : {&screen_.out(), &screen_.err()})
    if (sink->pending_bytes() > 0) poll_set_.watch(sink->fd(), POLLOUT);
}

void LaunchedJob::take_signals() {
  while (signals_.take()) ladder_.request(monotonic_now());
  if (screen_.out().broken() && !output_lost_) lose_output();
}

// As for any program whose output nobody gets: it ends.
void LaunchedJob::lose_output() {
  output_lost_ = true;
  const Status lost = output_error(screen_.out().failure());
  if (!lost.ok()) screen_.note(lost.message());
  if (!lost.ok() && exit_code_ == 0) exit_code_ = kExitFailed;
  ladder_.request(monotonic_now());
}

// A daemon's death comes first: the ranks' errors of the same moment follow from it.
void LaunchedJob::take_deaths() {
  if (cluster_ != nullptr) {
    const Status death = cluster_->take_death();
    if (!death.ok() && exit_code_ == 0) screen_.note(death.message());
    if (!death.ok()) fail_with(1);
  }
  take_rank_deaths();
  if (failed_rank_ >= 0 && ranks_[failed_rank_].done()) tell_failure();
}

// Of several that ended in one turn, one killed by a signal is the likely cause of the others.
void LaunchedJob::take_rank_deaths() {
  int first = -1;
  for (size_t i = 0; i < ranks_.size(); ++i) {
    if (!ranks_[i].take_ended() || ranks_[i].exit().ok() || pressed_) continue;
    if (first < 0 || (ranks_[first].exit().signal == 0 && ranks_[i].exit().signal != 0))
      first = static_cast<int>(i);
  }
  if (first < 0) return;
  if (exit_code_ == 0) failed_rank_ = first;
  fail_with(ranks_[first].exit().as_shell());
}

// Only the first failure counts: the others follow from it.
void LaunchedJob::fail_with(int exit_code) {
  if (exit_code_ == 0 && !pressed_) exit_code_ = exit_code;
  ladder_.failure(monotonic_now());
}

// Empty: as the error's own line says.
std::string LaunchedJob::where_to_look(int rank, const ExitState& exit) const {
  if (exit.signal == SIGKILL)  // the rank had no time to say anything
    return "somebody killed it; when memory runs out, the kernel does: see dmesg on that node";
  const std::string& files = starter_.options.output_directory;
  return files.empty() ? "" : "see " + files + "/rank." + std::to_string(rank) + ".err";
}

Status LaunchedJob::failure_of(int rank) const {
  const Process& process = ranks_[rank];
  const Host& host = starter_.plan.blocks[starter_.plan.places[rank].block];
  const std::string who = process.name() + " (pid " + std::to_string(process.pid()) + ")";
  if (!host.local && process.exit().as_shell() == kExitSshFailed)
    return error("H200",
                 who + " could not be started on host \"" + host.name + "\": ssh ended with 255",
                 "check the name, and that this works: ssh " + host.name);
  return error("H202", who + " on " + host.name + " ended with " + process.exit().text(),
               where_to_look(rank, process.exit()));
}

void LaunchedJob::tell_failure() {
  screen_.note(failure_of(failed_rank_).message());
  failed_rank_ = -1;
}

void LaunchedJob::press(Press press) {
  if (press == Press::kNone) return;
  if (!pressed_ && signals_.first() == 0 && exit_code_ != 0 && !all_done())
    screen_.note("gradbus run: stopping what still runs: " + running_ranks(ranks_));
  if (!pressed_ && signals_.first() != 0)
    screen_.note(std::string("gradbus run: ") + strsignal(signals_.first()) +
                 ": stopping all ranks (once more: kill at once)");
  pressed_ = true;
  const int number = press == Press::kTerminate ? SIGTERM : SIGKILL;
  for (const Process& rank : ranks_) rank.signal(number);
}

bool LaunchedJob::all_done() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Process& rank) { return rank.done(); });
}

Nanos LaunchedJob::next_deadline() const {
  Nanos next = ladder_.deadline();
  for (const Process& rank : ranks_) next = std::min(next, rank.deadline());
  return cluster_ == nullptr ? next : std::min(next, cluster_->deadline());
}

// The reader may take its time (a pager); a signal ends the wait, as does a stop that was asked
// for.
void LaunchedJob::drain_screen() {
  screen_.erase_progress();
  const Nanos until = signals_.first() != 0 ? monotonic_now() + kTerminateGrace : kNever;
  const int signals_seen = signals_.first();
  while (!screen_.is_empty() && monotonic_now() < until) {
    poll_set_.clear();
    poll_set_.watch(signals_.fd(), POLLIN);
    for (Sink* sink : {&screen_.out(), &screen_.err()})
      if (sink->pending_bytes() > 0) poll_set_.watch(sink->fd(), POLLOUT);
    poll_set_.wait_until(until);
    if (signals_.take() || signals_.first() != signals_seen) return;
    screen_.flush();
  }
}

}  // namespace gradbus
