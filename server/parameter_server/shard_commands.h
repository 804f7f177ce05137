// The commands of the conductor to the engine for jobs of which this node is a shard.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "common/status.h"
#include "data_plane/engine_command.h"
#include "server/parameter_server/shard_plan.h"

namespace gradbus {

class SnapshotKeeper;

// This node is one of a job's parameter-server shards.
struct StartShardJob {
  uint64_t job = 0;
  std::string name;
  uint32_t epoch = 0;
  uint64_t link_key = 0;
  uint32_t shard = 0;  // 0 .. shards - 1
  uint32_t agents = 1;
  std::vector<std::string> addresses;  // by agent index, then by shard
  std::shared_ptr<JobTraffic> traffic;
  std::shared_ptr<SnapshotKeeper> keeper;  // null: no snapshots
  uint64_t run = 0;                        // names this start of the job in snapshots
  uint32_t shards = 1;
};

// With `copy`, the tensor is the copy of another shard's part (shard_tensor.h).
struct AddShardTensor {
  uint64_t job = 0;
  ShardPlan plan;
  // Mode option restore: the initial state, or why it is not available.
  std::vector<RestoredChunk> restored = {};
  Status restore_failed = {};
  bool copy = false;
  // The initial state is on other shards, and all tensors of this command have arrived.
  bool begins_move = false;
  uint32_t placement = 0;
  uint64_t run = 0;  // names the placement in snapshots
};

void carry_out(Engine& engine, StartShardJob command);
void carry_out(Engine& engine, const AddShardTensor& command);

}  // namespace gradbus
