// The coordinator's messages about jobs and their shards, read and checked by agents and
// parameter-server shards alike. Plans of tensors are in tensor_plan.h.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <vector>

#include "data_plane/engine_command.h"
#include "gradbus/v1/coordinator.pb.h"
#include "proto/placement.h"
#include "shared_memory/tensor_spec.h"

namespace gradbus {

TensorSpec spec_from(const v1::TensorSpec& spec);
v1::TensorSpec spec_to(const TensorSpec& spec);
Status status_from(const v1::Error& error);

// The job's placement of chunks on shards. GB-D602 for a pattern with unknown shards.
Result<PlacementPattern> pattern_from(const v1::JobStarted& started);

// Some of the job's shards, and the placement of chunks on them.
struct ShardSet {
  uint32_t shards = 0;
  PlacementPattern pattern = nullptr;
  ShardMembers members = nullptr;  // null: the first shards
};
// GB-D602 for unknown shards or places.
Result<std::vector<ShardSet>> shard_sets_from(const v1::ShardsChanged& changed);
// The engine's command for new shards, if it knows `known` of them.
AddShards new_shards(const v1::ShardsChanged& changed, int known);

}  // namespace gradbus
