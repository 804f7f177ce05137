// The plan of one tensor, as agents and parameter-server shards use it: what its ranks registered,
// and what the coordinator decided. It is parsed and checked once in each process, when the
// coordinator's message arrives. Everything behind it trusts it.
//
// Pure functions; any thread.
#pragma once

#include <cstdint>
#include <optional>
#include <variant>
#include <vector>

#include "common/policy/sync_mode.h"
#include "data_plane/coordinator_plans.h"
#include "data_plane/partition_plan.h"
#include "gradbus/v1/coordinator.pb.h"
#include "shared_memory/tensor_spec.h"

namespace gradbus {

// Agents exchange its elements.
struct DensePlan {
  Algorithm algorithm = Algorithm::kRing;
};

// Agents exchange payloads of its partitions.
struct CompressedPlan {
  Algorithm algorithm = Algorithm::kRing;  // of an all-reduce of payloads
  CompressionPlan compression;
};

// The replaced tensor of a resharding.
struct MovedFrom {
  uint32_t id = 0;
  uint64_t chunk_elements = 1;  // of the chunks, or partitions, on shards
  uint32_t placement = 0;
};

// Parameter-server shards get its elements or payloads, and hold its parameters if the mode says
// so.
struct PsPlan {
  ShardSet shards;
  uint32_t placement = 0;  // index of `shards` among the job's sets
  uint32_t replicas = 1;   // copies of each chunk
  CompressionPlan compression;
  std::optional<MovedFrom> moved_from;
};

struct TensorPlan {
  uint32_t id = 0;
  TensorSpec spec;
  SyncMode mode;  // of the spec
  uint64_t chunk_elements = 1;
  std::variant<DensePlan, CompressedPlan, PsPlan> exchange;
  bool may_use_nccl = false;  // if all nodes have it on GPUs

  const PsPlan* ps() const { return std::get_if<PsPlan>(&exchange); }
  Algorithm algorithm() const;
  // none(): dense.
  const CompressionPlan& compression() const;
};

// The fields of a running job that plans refer to.
struct PlannedJob {
  uint32_t agents = 1;
  uint32_t world = 1;
  const std::vector<ShardSet>& shard_sets;  // by placement
};

// GB-D602 for plans that violate what collectives assume, which a coordinator of another version
// could send.
Result<TensorPlan> tensor_plan_from(const v1::ReadyTensor& ready, const PlannedJob& job);

}  // namespace gradbus
