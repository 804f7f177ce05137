#include "server/parameter_server/snapshot_keeper.h"

#include "common/errors.h"
#include "common/guarded.h"
#include "common/log.h"
#include "server/parameter_server/snapshot_set.h"

namespace gradbus {

SnapshotKeeper::SnapshotKeeper(std::string directory, Nanos every, size_t keep)
    : directory_(std::move(directory)), every_(every), keep_(keep), thread_([this] { work(); }) {}

SnapshotKeeper::~SnapshotKeeper() {
  {
    const std::lock_guard lock(lock_);
    stopping_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void SnapshotKeeper::post(std::function<void()> task) {
  {
    const std::lock_guard lock(lock_);
    tasks_.push_back(std::move(task));
    ++posted_;
  }
  changed_.notify_all();
}

void SnapshotKeeper::drain() {
  std::unique_lock lock(lock_);
  const uint64_t wanted = posted_;
  changed_.wait(lock, [&] { return done_ >= wanted; });
}

void SnapshotKeeper::work() {
  std::unique_lock lock(lock_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !tasks_.empty(); });
    if (tasks_.empty()) return;
    std::function<void()> task = std::move(tasks_.front());
    tasks_.pop_front();
    lock.unlock();
    if (const Status done = guarded(task); !done.ok())
      spdlog::error("a snapshot: {}", done.message());
    task = nullptr;  // releases its resources before it counts as done
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

void SnapshotKeeper::tidy(const std::string& job) const {
  if (keep_ == 0) return;
  if (const size_t removed = remove_old_runs(directory_, job, keep_); removed > 0)
    spdlog::info("job \"{}\": snapshots of {} older runs are removed, {} are kept", job, removed,
                 keep_);
}

void SnapshotKeeper::restore(const std::string& job, std::vector<uint64_t> runs,
                             const ShardPlan& plan, std::function<void(Restored)> done) {
  post([this, job, runs = std::move(runs), plan, done = std::move(done)] {
    Restored restored = error("X001", "nothing was read");
    const Status whole = guarded([&] { restored = read(job, runs, plan); });
    done(whole.ok() ? std::move(restored) : Restored(whole));
  });
}

// The tensors of a job are read one after the other, so its files are opened once.
SnapshotKeeper::Restored SnapshotKeeper::read(const std::string& job,
                                              std::span<const uint64_t> runs,
                                              const ShardPlan& plan) {
  if (set_ == nullptr || set_job_ != job || set_run_ != runs.front()) {
    set_ = nullptr;
    Result<SnapshotSet> set = SnapshotSet::open(directory_, job, runs);
    if (!set.ok()) return set.status();
    set_ = std::make_unique<SnapshotSet>(set.take());
    set_job_ = job;
    set_run_ = runs.front();
    spdlog::info("job \"{}\" is restored from {}", job, set_->run_directory());
  }
  return set_->read(plan);
}

}  // namespace gradbus
