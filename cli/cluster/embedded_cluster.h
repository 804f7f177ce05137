// A coordinator and agents for one job, in a private directory, gone with the job. Main thread
// only. They have a cluster token of their own, in a file of that directory.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cli/cluster/cluster_layout.h"
#include "cli/cluster/embedded_daemon.h"
#include "cli/cluster/link_lab.h"
#include "cli/process/orphan_guard.h"
#include "cli/process/poll_set.h"
#include "cli/process/private_dir.h"
#include "cli/process/signal_queue.h"
#include "cli/terminal/screen.h"
#include "common/clock.h"
#include "common/status.h"

namespace gradbus {

// Half a second is usual; an emulated or overloaded machine has been seen to need 15.
inline constexpr Nanos kDaemonStart = 30 * kSecond;
inline constexpr Nanos kDaemonStop = 2 * kSecond;
// In all, as one that ends again and again must not fill the screen.
inline constexpr int kShardRestartsMax = 10;
inline constexpr Nanos kSnapshotStop = 120 * kSecond;  // shards that write a last snapshot

class EmbeddedCluster {
 public:
  EmbeddedCluster(Screen& screen, OrphanGuard& guard, bool verbose);
  ~EmbeddedCluster();  // stop()

  // Starts all and waits until each has said that it is ready, for kDaemonStart at most. A signal
  // ends the wait with kClosed. With links each agent is in a namespace of its own, behind its
  // link; its ranks belong there, too, and the shards that the layout has beside it. Errors:
  // GB-H201 (program not found beside this one), GB-C501 and GB-A300 (it ended or did not become
  // ready; its last words), GB-H203 (no such network here).
  Status start(const ClusterLayout& layout, SignalQueue& signals);

  const std::string& coordinator() const { return coordinator_; }
  const std::string& token_file() const { return token_file_; }
  const std::vector<std::string>& sockets() const { return sockets_; }
  // The network of a start with links, else null; valid until stop().
  const LinkLab* lab() const { return lab_.get(); }

  void watch(PollSet& set) const;
  void serve(const PollSet& set, Nanos now);
  Nanos deadline() const;
  // Maximum number of agent restarts. A restarted agent gets the options that it had.
  void restart_agents(int times) { restarts_left_.agents = times; }
  // The error of a daemon that has ended since the last call and without which no job can go on;
  // ok when none has. A shard is no such daemon: its end is told, and it is started again.
  Status take_death();

  // SIGTERM, after kDaemonStop SIGKILL; removes the directory. Idempotent.
  void stop();

 private:
  struct Restarts {
    int agents = 0;
    int shards = kShardRestartsMax;
  };

  Status start_daemon(EmbeddedDaemon::Spec spec);
  Result<EmbeddedDaemon> make_daemon(EmbeddedDaemon::Spec spec);
  Status start_coordinator();
  Result<std::string> await_ready(EmbeddedDaemon& daemon, const char* key, SignalQueue& signals,
                                  Nanos until);
  Status start_agents(const ClusterLayout& layout);
  Status start_shards(const ClusterLayout& layout);
  std::vector<std::string> network_words(const ClusterLayout& layout, int node) const;
  Status await_nodes(SignalQueue& signals, Nanos until);
  bool is_started_again(const EmbeddedDaemon& daemon);
  void tell_lost_shard(const EmbeddedDaemon& daemon);
  void restart_ended();
  void signal_all(int number) const;
  bool all_done() const;
  void turn(PollSet& set, Nanos until);

  Screen& screen_;
  OrphanGuard& guard_;
  bool verbose_;
  std::shared_ptr<std::string> shown_wait_ = std::make_shared<std::string>();
  std::unique_ptr<PrivateDir> directory_;
  std::string token_file_;
  std::unique_ptr<LinkLab> lab_;
  std::vector<EmbeddedDaemon> daemons_;
  Restarts restarts_left_;
  Status restart_failure_;
  std::string coordinator_;
  std::vector<std::string> sockets_;
};

// The path of `name` beside this very program, where all of them are installed.
std::string sibling_program(const char* name);

// The one-line JSON object a daemon writes on its --ready-fd: the text of `key`. GB-D602 otherwise.
Result<std::string> parse_ready_line(const std::string& line, const char* key);

}  // namespace gradbus
