// The thread that writes and reads a shard's snapshots, so that neither the engine nor the
// conductor waits for a disk. One for all jobs of the daemon.
//
// Everything public: any thread.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "common/clock.h"
#include "common/status.h"
#include "worker_agent/shard/shard_plan.h"

namespace gradbus {

class SnapshotSet;

class SnapshotKeeper {
 public:
  // `directory` holds the snapshots of all jobs. `every`: from the end of a snapshot to the next
  // one, of each job; 0: at a job's end only. `keep`: so many runs of a job at most; 0: all.
  SnapshotKeeper(std::string directory, Nanos every, size_t keep = 0);
  ~SnapshotKeeper();  // what was posted is done first

  const std::string& directory() const { return directory_; }
  Nanos every() const { return every_; }

  // In order, one at a time, on the keeper's thread.
  void post(std::function<void()> task);
  // Returns when all that was posted before is done.
  void drain();

  // On the keeper's thread, when a snapshot of the job has been written: older ones may go.
  void tidy(const std::string& job) const;

  // Reads what the newest run of the job but its own, `runs`, has left of this tensor; `done` is
  // called on the keeper's thread. Errors: SnapshotSet's.
  using Restored = Result<std::vector<RestoredChunk>>;
  void restore(const std::string& job, std::vector<uint64_t> runs, const ShardPlan& plan,
               std::function<void(Restored)> done);

 private:
  void work();
  Restored read(const std::string& job, std::span<const uint64_t> runs, const ShardPlan& plan);

  const std::string directory_;
  const Nanos every_;
  const size_t keep_;

  // ---- the keeper's thread only: the files of the run that was read last
  std::unique_ptr<SnapshotSet> set_;
  std::string set_job_;
  uint64_t set_run_ = 0;  // of the job that asked

  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace gradbus
