// What a shard is told of a tensor.
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "common/exchange_mode.h"
#include "common/kernels/reduce.h"
#include "worker_agent/collectives/collective.h"
#include "worker_agent/compressed/unit_plan.h"

namespace gradbus {

// The same on every shard of the job except `shard`.
struct ShardPlan {
  CollectivePlan collective;  // agent_index is not used
  std::string name;
  uint32_t shard = 0;           // 0 .. collective.shards - 1
  Reduction last;               // ps:sync: of the sum of all nodes
  ExchangeMode mode;            // on_shards()
  std::vector<uint32_t> ranks;  // by agent: how many ranks' sum a push is
  CompressionPlan compression;
  uint64_t tensor_seed = 0;  // unit_plan.h

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
