#include "data_plane/partition_plan.h"

#include <algorithm>
#include <numeric>

#include "common/check.h"
#include "common/checked.h"
#include "compression/random.h"
#include "data_plane/collectives/payload_cut.h"
#include "proto/algorithms.h"
#include "proto/placement.h"

namespace gradbus {
namespace {

constexpr uint64_t kAlignBytes = 128;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// At least two chunks per agent if they are worth a frame, so that all agents work at once.
uint64_t vector_chunk_elements(uint64_t elements, uint64_t element_bytes, uint32_t agents) {
  const uint64_t share = round_up((elements + 2 * agents - 1) / (2 * agents), 64);
  const uint64_t least = (16 << 10) / element_bytes;
  return std::clamp(share, least, kFramePayloadBytesMax / element_bytes);
}

CollectivePlan between_agents(const PartitionPlan& partition) {
  CollectivePlan plan;
  plan.codec = partition.spec.codec->id;
  plan.agent_index = partition.agent_index;
  plan.agents = partition.agents;
  plan.agent_of_rank.resize(partition.agents);
  std::iota(plan.agent_of_rank.begin(), plan.agent_of_rank.end(), 0);
  return plan;
}

}  // namespace

// A part of a matrix may contain partial rows, which codecs that need a matrix must know.
CodecShape partition_shape(const CompressionPlan& compression, uint64_t count, uint32_t index) {
  const uint64_t first = index * compression.partition_elements;
  CodecShape shape;
  shape.count_max = std::min(compression.partition_elements, count - first);
  const bool by_rows = compression.spec.codec->traits.by_rows;
  shape.columns = by_rows || compression.partition_elements >= count ? compression.columns : 0;
  shape.rows = shape.columns == 0 ? 1 : shape.count_max / shape.columns;
  return shape;
}

uint64_t tensor_seed(uint64_t job, uint32_t tensor) { return mix_u64(job) + tensor; }
uint64_t partition_seed(uint64_t of_tensor, uint32_t index, uint64_t round) {
  return mix_u64(mix_u64(of_tensor + index) + round);
}
uint64_t peer_seed(uint64_t of_partition, uint32_t peer) {
  return mix_u64(of_partition + 1 + peer);
}

Stage blocks_stage(const PartitionPlan& partition, CollectiveKind kind, uint32_t root,
                   uint64_t block_bytes_max) {
  Stage stage;
  stage.plan = between_agents(partition);
  stage.plan.kind = kind;
  stage.plan.algorithm = Algorithm::kDirect;
  stage.plan.dtype = DType::kU8;
  stage.plan.op = ReduceOp::kNone;
  stage.plan.root = root;
  stage.plan.count = block_bytes_max;
  stage.plan.chunk_elements = std::min(block_bytes_max, kPayloadChunkBytes);
  stage.stride = round_up(block_bytes_max, kAlignBytes);
  stage.bytes = checked_product(stage.stride, block_count(kind, partition.agents));
  GRADBUS_CHECK(fits(kind, stage.plan.algorithm));
  return stage;
}

Stage shard_stage(const PartitionPlan& partition, uint64_t payload_bytes_max) {
  Stage stage;
  stage.plan = between_agents(partition);
  stage.plan.kind = CollectiveKind::kGather;
  stage.plan.algorithm = Algorithm::kShards;
  stage.plan.dtype = DType::kU8;
  stage.plan.op = ReduceOp::kNone;
  stage.plan.root =
      shard_of(partition.tensor, partition.index, partition.shards, partition.pattern);
  stage.plan.count = payload_bytes_max;
  stage.plan.chunk_elements = kPayloadChunkBytes;
  stage.plan.shards = partition.shards;
  stage.plan.replicas = partition.replicas;
  stage.plan.tensor = partition.tensor;
  stage.plan.parameters = partition.parameters;
  stage.plan.pattern = partition.pattern;
  stage.plan.members = partition.members;
  stage.stride = round_up(payload_bytes_max, kAlignBytes);
  stage.bytes = stage.stride * stage.plan.blocks();
  return stage;
}

Stage vector_stage(const PartitionPlan& partition, DType dtype, uint64_t elements) {
  Stage stage;
  stage.plan = between_agents(partition);
  stage.plan.algorithm = partition.shards > 0 ? Algorithm::kRing : partition.algorithm;
  stage.plan.dtype = dtype;
  stage.plan.count = elements;
  const uint64_t frame_elements = kFramePayloadBytesMax / dtype_bytes(dtype);
  const bool whole = partition.algorithm == Algorithm::kRecursiveDoubling;
  if (whole && elements > frame_elements) stage.plan.algorithm = Algorithm::kRing;
  stage.plan.chunk_elements =
      stage.plan.algorithm == Algorithm::kRecursiveDoubling
          ? frame_elements
          : vector_chunk_elements(elements, dtype_bytes(dtype), partition.agents);
  stage.stride = stage.bytes = round_up(elements * dtype_bytes(dtype), kAlignBytes);
  return stage;
}

std::vector<Stage> vector_stages(const PartitionPlan& partition, const LinearCodec& codec) {
  std::vector<Stage> stages;
  for (uint32_t round = 0; round < codec.rounds(); ++round)
    stages.push_back(vector_stage(partition, codec.dtype(round), codec.vector_elements(round)));
  return stages;
}

}  // namespace gradbus
