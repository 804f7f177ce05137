// Snapshots of one job on one shard, the engine's side: from time to time it copies one chunk a
// turn, and the keeper's thread writes the copies. So a step waits for the copy of a chunk at most,
// and memory for a few chunks is enough, whatever the shard holds.
//
// When the job has ended nothing is copied: nobody writes any more, so the keeper reads the tensors
// themselves.
//
// Engine thread only.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "common/clock.h"
#include "worker_agent/shard/shard_tensor.h"
#include "worker_agent/shard/snapshot_keeper.h"
#include "worker_agent/shard/snapshot_writer.h"

namespace gradbus {

class ShardSnapshots {
 public:
  using Tensors = std::vector<std::unique_ptr<ShardTensor>>;  // by id, with holes

  // Without a keeper everything below does nothing.
  ShardSnapshots(std::shared_ptr<SnapshotKeeper> keeper, SnapshotPlace place, Nanos now);
  ~ShardSnapshots();

  // One turn; how much it did.
  size_t do_work(Nanos now, const Tensors& tensors);
  // When do_work() is to be called although nothing happened; 0: never.
  Nanos wake_at() const { return wake_at_; }

  // Nothing more is copied; what was begun counts as never begun.
  void abandon() { pass_ = nullptr; }

  // The job has ended: `tensors` stay as they are until ended().
  void end(const Tensors& tensors);
  bool ended() const;

 private:
  struct Pass;  // one snapshot
  void begin();
  size_t copy_next(const Tensors& tensors);

  const std::shared_ptr<SnapshotKeeper> keeper_;
  const SnapshotPlace place_;
  Nanos wake_at_ = 0;
  std::shared_ptr<Pass> pass_;  // null: none under way
  size_t tensor_ = 0;           // the next chunk to copy
  uint32_t chunk_ = 0;
  bool copied_ = false;  // all chunks
};

}  // namespace gradbus
