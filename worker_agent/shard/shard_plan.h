// What a shard is told of a tensor.
#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "common/exchange_mode.h"
#include "common/kernels/reduce.h"
#include "worker_agent/collectives/collective.h"
#include "worker_agent/compressed/unit_plan.h"

namespace gradbus {

// The tensor whose place one takes, and where its chunks lie.
struct MovedPlan {
  uint32_t tensor = 0;
  uint64_t chunk_elements = 1;  // of what shards hold: ShardPlan::cut()
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
  uint32_t shard = 0;           // 0 .. collective.shards - 1: its place among them
  Reduction last;               // ps:sync: of the sum of all nodes
  ExchangeMode mode;            // on_shards()
  std::vector<uint32_t> ranks;  // by agent: how many ranks' sum a push is
  CompressionPlan compression;
  uint64_t tensor_seed = 0;        // unit_plan.h
  std::optional<MovedPlan> moved;  // it begins with what that one holds

  // What shards hold: chunks, or the units of a compressed tensor, or all of it as one.
  ChunkPlan cut() const {
    if (collective.one_shard)
      return {collective.count, 1, 1, std::max<uint64_t>(collective.count, 1)};
    const bool dense = compression.spec.none();
    return {collective.count, 1, 1, dense ? collective.chunk_elements : compression.unit_elements};
  }
};

// What a chunk begins with instead of nothing: mode option restore.
struct RestoredChunk {
  uint64_t steps = 0;
  float learning_rate = 0;
  std::vector<float> values;  // the parameters, then the optimizer's vectors
};

}  // namespace gradbus
