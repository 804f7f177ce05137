// The thread that writes and reads a shard's snapshots, so that neither the engine nor the
// conductor waits for a disk. There is one for all jobs of the daemon.
//
// Any thread may call the public functions.
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
#include "server/parameter_server/shard_plan.h"

namespace gradbus {

class SnapshotSet;

class SnapshotKeeper {
 public:
  // `directory` has the snapshots of all jobs. `every` is the time from the end of a job's snapshot
  // to its next one; 0: only at the end of a job. `keep` is the maximum of runs per job; 0: all.
  SnapshotKeeper(std::string directory, Nanos every, size_t keep = 0);
  ~SnapshotKeeper();  // runs all posted tasks first

  const std::string& directory() const { return directory_; }
  Nanos every() const { return every_; }

  // Tasks run in order, one at a time, on the keeper's thread.
  void post(std::function<void()> task);
  // Returns when all earlier tasks are done.
  void drain();

  // Removes old runs. Called on the keeper's thread after a snapshot of the job was written.
  void tidy(const std::string& job) const;

  // Reads this tensor from the job's newest run other than its own, `runs`. Calls `done` on the
  // keeper's thread. Errors: those of SnapshotSet.
  using Restored = Result<std::vector<RestoredChunk>>;
  void restore(const std::string& job, std::vector<uint64_t> runs, const ShardPlan& plan,
               std::function<void(Restored)> done);

 private:
  void work();
  Restored read(const std::string& job, std::span<const uint64_t> runs, const ShardPlan& plan);

  const std::string directory_;
  const Nanos every_;
  const size_t keep_;

  // ---- used by the keeper's thread only: the files of the run that was read last
  std::unique_ptr<SnapshotSet> set_;
  std::string set_job_;
  uint64_t set_run_ = 0;  // of the job that requested it

  std::mutex lock_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  uint64_t posted_ = 0;
  uint64_t done_ = 0;
  bool stopping_ = false;
  std::thread thread_;  // last, because it uses all members above
};

}  // namespace gradbus
