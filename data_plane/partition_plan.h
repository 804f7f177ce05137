// The plan of a compressed partition, and the collective operations for its payloads. All agents
// and shards derive the same operations from a plan.
#pragma once

#include <cstdint>
#include <vector>

#include "compression/registry.h"
#include "data_plane/collectives/collective.h"

namespace gradbus {

// How a tensor's gradient is compressed between agents.
struct CompressionPlan {
  CompressionSpec spec;  // none(): not compressed
  Communicator communicator = Communicator::kAuto;
  uint64_t partition_elements = 0;  // the whole tensor, or a multiple of its chunk_elements
  uint64_t columns = 0;             // of the tensor as a matrix; 0: a vector
};

// The shape of partition `index` of a tensor of `count` elements; its count_max is the partition's
// elements.
CodecShape partition_shape(const CompressionPlan& compression, uint64_t count, uint32_t index);

// Seeds of all random numbers of a tensor, of a round of a partition, and of one agent or shard in
// it. `peer`: an agent, or a shard; shards come after the agents.
uint64_t tensor_seed(uint64_t job, uint32_t tensor);
uint64_t partition_seed(uint64_t of_tensor, uint32_t index, uint64_t round);
uint64_t peer_seed(uint64_t of_partition, uint32_t peer);

struct PartitionPlan {
  CompressionSpec spec;
  Communicator communicator = Communicator::kAllGather;  // not kAuto
  CodecShape shape;
  size_t count = 0;
  uint32_t index = 0;        // of the partition in its tensor
  uint64_t tensor_seed = 0;  // the same on all agents
  uint32_t agent_index = 0;
  uint32_t agents = 2;
  uint32_t shards = 0;                     // shards that hold partitions; 0: none
  uint32_t replicas = 1;                   // copies of each partition there
  bool parameters = false;                 // whether they are partitions of parameters
  uint32_t tensor = 0;                     // id
  PlacementPattern pattern = nullptr;      // of partitions on shards
  ShardMembers members = nullptr;          // the job's shards that are used
  Algorithm algorithm = Algorithm::kRing;  // algorithm of an all-reduce
  float scale = 1;                         // factor of the sum of all agents
  // The owner of this partition, if partitions have owners.
  uint32_t owner() const { return index % agents; }

  // The partition's first element in each local rank's buffer; empty if they are on GPUs
  // (device_partitions.h).
  std::vector<float*> rank_buffers;
};

// One collective operation; its memory contains its blocks, or its vector.
struct Stage {
  CollectivePlan plan;
  uint64_t stride = 0;  // bytes per block
  uint64_t bytes = 0;   // total bytes
};

// Blocks of up to `block_bytes_max`: one per agent, or one per pair of agents (all-to-all).
Stage blocks_stage(const PartitionPlan& partition, CollectiveKind kind, uint32_t root,
                   uint64_t block_bytes_max);
// Payloads of up to this size, to the shard that holds the partition and back.
Stage shard_stage(const PartitionPlan& partition, uint64_t payload_bytes_max);
// A vector that the agents sum.
Stage vector_stage(const PartitionPlan& partition, DType dtype, uint64_t elements);
// One vector stage for each round of the codec.
std::vector<Stage> vector_stages(const PartitionPlan& partition, const LinearCodec& codec);

}  // namespace gradbus
