#include "worker_agent/rounds/dense_round.h"

namespace gradbus {
namespace {

CollectivePlan plan_of(const StartJob& job, const AddTensor& add) {
  CollectivePlan plan;
  plan.kind = add.shape.kind;
  plan.algorithm = add.algorithm;
  plan.dtype = add.shape.dtype;
  plan.op = add.op;
  plan.count = add.shape.count;
  plan.chunk_elements = add.shape.chunk_elements;
  plan.row_elements = add.shape.row_elements;
  plan.root = add.root;
  plan.agent_index = job.agent_index;
  plan.agent_of_rank = job.agent_of_rank;
  plan.agents = job.agents;
  const bool on_shards = add.algorithm == Algorithm::kShards;
  const bool began = add.shards == 0;  // the placement of the job's start
  plan.shards = on_shards ? (began ? job.shards : add.shards) : 0;
  plan.replicas = add.replicas;
  plan.tensor = add.tensor;
  plan.pattern = began ? job.pattern : add.pattern;
  plan.members = add.members;
  plan.one_shard = add.one_shard;
  plan.by_nccl = add.by_nccl;
  plan.turns = add.nccl_turns;
  return plan;
}

// The rank buffers of ranks that get the result there. On GPUs the first rank buffer delivers it.
std::vector<uint32_t> rank_buffers_in_host_memory(const StartJob& job, const AddTensor& add) {
  if (!reduces(add.shape.kind)) return {};
  return add.device == nullptr ? job.local_ranks : std::vector<uint32_t>{job.local_ranks.front()};
}

}  // namespace

DenseRound::DenseRound(const StartJob& job, const AddTensor& add, RegionId region)
    : operations_{std::make_unique<CollectiveOperation>(
          OperationId{add.tensor, 0}, plan_of(job, add),
          OperationBuffers{region, add.slot.data_offset, add.segment->at(add.slot.data_offset),
                           add.shape.data_stride},
          rank_buffers_in_host_memory(job, add), add.last)} {}

Status DenseRound::begin(const RoundInput& input, OperationQueue& next) {
  done_ = false;
  next.add(
      {OperationEvent::Kind::kBegin, operations_[0].get(), input.number, input.block_bytes, 0});
  return {};
}

Status DenseRound::chunk_summed(uint32_t chunk, OperationQueue& next) {
  next.add({OperationEvent::Kind::kChunk, operations_[0].get(), 0, {}, chunk});
  return {};
}

Status DenseRound::ended(const CollectiveOperation&, OperationQueue&) {
  done_ = true;
  return {};
}

}  // namespace gradbus
