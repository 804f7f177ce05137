// The plan of a tensor for a shard.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/kernels/reduce.h"
#include "common/policy/sync_mode.h"
#include "data_plane/collectives/collective.h"
#include "data_plane/partition_plan.h"

namespace gradbus {

// The replaced tensor, and the shards of its chunks.
struct ReshardingPlan {
  uint32_t tensor = 0;
  uint64_t chunk_elements = 1;  // of the chunks on shards: ShardPlan::cut()
  uint32_t shards = 1;
  uint32_t replicas = 1;
  PlacementPattern pattern = nullptr;
  ShardMembers members = nullptr;
  bool one_shard = false;
};

// The same on every shard of the job except `shard`.
struct ShardPlan {
  CollectivePlan collective;  // agent_index is not used
  std::string name;
  uint32_t shard = 0;           // 0 .. collective.shards - 1: index of this shard
  Reduction last;               // ps:sync: operation on the sum of all nodes
  SyncMode mode;                // a mode with on_shards()
  std::vector<uint32_t> ranks;  // by agent: how many ranks a push sums
  CompressionPlan compression;
  uint64_t tensor_seed = 0;             // partition_plan.h
  std::optional<ReshardingPlan> moved;  // it starts with the state of this tensor
  std::string job;                      // its name, for the log

  // The division on shards: chunks, partitions of a compressed tensor, or the whole tensor as one.
  ChunkPlan cut() const {
    if (collective.one_shard)
      return {collective.count, 1, 1, std::max<uint64_t>(collective.count, 1)};
    const bool dense = compression.spec.none();
    return {collective.count, 1, 1,
            dense ? collective.chunk_elements : compression.partition_elements};
  }
};

// The initial state of a chunk: mode option restore.
struct RestoredChunk {
  uint64_t steps = 0;
  float learning_rate = 0;
  std::vector<float> values;  // the parameters, then the optimizer's vectors
};

}  // namespace gradbus
