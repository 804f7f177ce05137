#include "worker_agent/rounds/dense_round.h"

namespace gradbus {
namespace {

CollectivePlan plan_of(const StartJob& job, const AddTensor& add) {
  const TensorSpec& spec = add.plan.spec;
  CollectivePlan plan;
  plan.kind = spec.kind;
  plan.algorithm = add.plan.algorithm();
  plan.dtype = spec.dtype;
  plan.op = spec.op;
  plan.count = spec.count;
  plan.chunk_elements = add.plan.chunk_elements;
  plan.row_elements = spec.row_elements;
  plan.root = spec.root;
  plan.agent_index = job.agent_index;
  plan.agent_of_rank = job.agent_of_rank;
  plan.agents = job.agents;
  plan.tensor = add.plan.id;
  if (const PsPlan* const ps = add.plan.ps(); ps != nullptr) {
    plan.shards = ps->shards.shards;
    plan.replicas = ps->replicas;
    plan.pattern = ps->shards.pattern;
    plan.members = ps->shards.members;
    plan.one_shard = add.plan.mode.keeps_tensors_whole();
  }
  if (add.gpu() != nullptr && add.gpu()->nccl) {
    plan.by_nccl = true;
    plan.turns = add.gpu()->nccl->turns;
  }
  return plan;
}

// The rank buffers of ranks that get the result there. On GPUs the first rank buffer delivers it.
std::vector<uint32_t> rank_buffers_in_host_memory(const StartJob& job, const AddTensor& add) {
  if (!reduces(add.plan.spec.kind)) return {};
  return add.gpu() == nullptr ? job.local_ranks : std::vector<uint32_t>{job.local_ranks.front()};
}

}  // namespace

DenseRound::DenseRound(const StartJob& job, const AddTensor& add, RegionId region)
    : operations_{std::make_unique<CollectiveOperation>(
          OperationId{add.plan.id, 0}, plan_of(job, add),
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
