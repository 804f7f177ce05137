// What a compressed unit is made of, and the exchanges that its payloads need. All agents make the
// same ones of the same plan.
#pragma once

#include <cstdint>
#include <vector>

#include "compression/registry.h"
#include "worker_agent/collectives/collective.h"

namespace gradbus {

struct UnitPlan {
  CompressionSpec spec;
  Communicator communicator = Communicator::kAllGather;  // not kAuto
  CodecShape shape;
  size_t count = 0;
  uint32_t index = 0;        // of the unit in its tensor
  uint64_t tensor_seed = 0;  // the same on all agents
  uint32_t agent_index = 0;
  uint32_t agents = 2;
  Algorithm algorithm = Algorithm::kRing;  // of an all-reduce
  float scale = 1;                         // of the sum of all agents
  std::vector<float*> areas;               // the unit's first element in each local rank's area
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
// A vector that is summed.
Stage vector_stage(const UnitPlan& unit, DType dtype, uint64_t elements);

}  // namespace gradbus
