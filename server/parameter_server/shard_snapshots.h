// Snapshots of one job on one shard, on the engine's side. From time to time it copies one chunk
// per turn, and the keeper's thread writes the copies. So a step waits at most for the copy of one
// chunk. Memory for a few chunks is enough for a shard of any size.
//
// When the job has ended, nothing is copied: the tensors do not change any more, so the keeper
// reads them directly.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "server/parameter_server/shard_tensor.h"
#include "server/parameter_server/snapshot_keeper.h"
#include "server/parameter_server/snapshot_writer.h"

namespace gradbus {

class ShardSnapshots {
 public:
  using Tensors = std::vector<std::unique_ptr<ShardTensor>>;  // by id, with holes

  // Without a keeper, the functions below do nothing.
  ShardSnapshots(std::shared_ptr<SnapshotKeeper> keeper, SnapshotPlace place, Nanos now);
  ~ShardSnapshots();

  // Does one turn of work and returns how much.
  size_t do_work(Nanos now, const Tensors& tensors);
  // When to call do_work() even if nothing happened; 0: never.
  Nanos wake_at() const { return wake_at_; }

  // Stops copying. A snapshot in progress never becomes visible.
  void abandon() { pass_ = nullptr; }

  // The job has ended. `tensors` do not change until ended().
  void end(const Tensors& tensors);
  bool ended() const;

 private:
  struct Pass;  // one snapshot
  void begin();
  size_t copy_next(const Tensors& tensors);

  const std::shared_ptr<SnapshotKeeper> keeper_;
  const SnapshotPlace place_;
  Nanos wake_at_ = 0;
  std::shared_ptr<Pass> pass_;  // null: none in progress
  size_t tensor_ = 0;           // tensor of the next chunk to copy
  uint32_t chunk_ = 0;
  bool copied_ = false;  // whether all chunks are copied
};

}  // namespace gradbus
