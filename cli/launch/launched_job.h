// The launcher's loop: starts a plan's ranks, carries their output, notices ends, failures and
// signals, and comes back when nothing of the job is left. Main thread only; one poll loop.
//
// Invariant: when run() returns, no process group it started exists, whatever happened.
#pragma once

#include <string>
#include <vector>

#include "cli/cluster/embedded_cluster.h"
#include "cli/launch/rank_start.h"
#include "cli/launch/trace_recorder.h"
#include "cli/process/poll_set.h"
#include "cli/process/process.h"
#include "cli/process/signal_queue.h"
#include "cli/process/stop_ladder.h"
#include "cli/terminal/screen.h"

namespace gradbus {

class LaunchedJob {
 public:
  // `cluster` may be null: the machine's own daemons serve the job. `trace`: null without one.
  LaunchedJob(const RankStarter& starter, Screen& screen, SignalQueue& signals,
              EmbeddedCluster* cluster, TraceRecorder* trace);

  // The exit code: 0, that of the first failure, or 128 + signal.
  int run();

 private:
  void start_ranks();
  void turn();
  void fill_poll_set(bool paused);
  void take_signals();
  void take_deaths();
  void take_rank_deaths();
  void fail_with(int exit_code);
  Status failure_of(int rank) const;
  std::string where_to_look(int rank, const ExitState& exit) const;
  void tell_failure();
  void press(Press press);
  bool all_done() const;
  Nanos next_deadline() const;
  void drain_screen();
  void lose_output();

  const RankStarter& starter_;
  Screen& screen_;
  SignalQueue& signals_;
  EmbeddedCluster* cluster_;
  TraceRecorder* trace_;
  std::vector<Process> ranks_;  // by rank
  PollSet poll_set_;
  StopLadder ladder_;
  bool pressed_ = false;  // from here on ranks end because we made them
  bool output_lost_ = false;
  int exit_code_ = 0;     // of the first failure
  int failed_rank_ = -1;  // whose failure is still to be told, behind its last lines
};

}  // namespace gradbus
