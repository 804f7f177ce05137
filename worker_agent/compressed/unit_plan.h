// What a compressed unit is made of, and the exchanges that its payloads need. All agents, and the
// shards, make the same ones of the same plan.
#pragma once

#include <cstdint>
#include <vector>

#include "compression/registry.h"
#include "worker_agent/collectives/collective.h"

namespace gradbus {

// How a tensor's gradient is made smaller on its way between agents.
struct CompressionPlan {
  CompressionSpec spec;  // none(): it is not
  Communicator communicator = Communicator::kAuto;
  uint64_t unit_elements = 0;  // all of the tensor, or a multiple of its chunk_elements
  uint64_t columns = 0;        // of the tensor seen as a matrix; 0: a vector
};

// Of unit `index` of a tensor of `count` elements; its count_max is the unit's elements.
CodecShape unit_shape(const CompressionPlan& compression, uint64_t count, uint32_t index);

// Of everything random in a tensor, a unit's round of it, and what one agent or shard does there.
// `peer`: an agent, or a shard, which come after the agents.
uint64_t tensor_seed(uint64_t job, uint32_t tensor);
uint64_t unit_seed(uint64_t of_tensor, uint32_t index, uint64_t round);
uint64_t peer_seed(uint64_t of_unit, uint32_t peer);

struct UnitPlan {
  CompressionSpec spec;
  Communicator communicator = Communicator::kAllGather;  // not kAuto
  CodecShape shape;
  size_t count = 0;
  uint32_t index = 0;        // of the unit in its tensor
  uint64_t tensor_seed = 0;  // the same on all agents
  uint32_t agent_index = 0;
  uint32_t agents = 2;
  uint32_t shards = 0;                     // that hold units; 0: the agents do without
  uint32_t replicas = 1;                   // of each unit there
  bool parameters = false;                 // which units of parameters are
  uint32_t tensor = 0;                     // id
  PlacementPattern pattern = nullptr;      // of units on shards
  ShardMembers members = nullptr;          // which shards these are
  Algorithm algorithm = Algorithm::kRing;  // of an all-reduce
  float scale = 1;                         // of the sum of all agents
  // Where units have owners: this one's.
  uint32_t owner() const { return index % agents; }

  // The unit's first element in each local rank's area; none: they are on GPUs (device_units.h)
  std::vector<float*> areas;
};

// One exchange; its memory is its blocks, or its vector.
struct Stage {
  CollectivePlan plan;
  uint64_t stride = 0;  // bytes of a block
  uint64_t bytes = 0;   // of all
};

// Blocks of up to `block_bytes_max`: one of each agent, or of each for each (all-to-all).
Stage blocks_stage(const UnitPlan& unit, CollectiveKind kind, uint32_t root,
                   uint64_t block_bytes_max);
// Payloads of up to that many bytes, to the shard that holds the unit and back.
Stage shard_stage(const UnitPlan& unit, uint64_t payload_bytes_max);
// A vector that is summed by the agents.
Stage vector_stage(const UnitPlan& unit, DType dtype, uint64_t elements);
// One of these for each round of such a codec.
std::vector<Stage> vector_stages(const UnitPlan& unit, const LinearCodec& codec);

}  // namespace gradbus
