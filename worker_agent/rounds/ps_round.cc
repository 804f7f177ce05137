#include "worker_agent/rounds/ps_round.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace gradbus {

PsRound::PsRound(const StartJob& job, const AddTensor& add, std::unique_ptr<TensorRound> exchange)
    : exchange_(std::move(exchange)),
      traffic_(job.traffic),
      board_(job.staleness),
      tensor_(add.plan.id),
      holds_parameters_(add.plan.mode.holds_parameters()),
      replicas_(add.plan.ps()->replicas),
      first_peer_(job.agents),
      shards_(add.plan.ps()->shards) {
  if (holds_parameters_) board_->add(tensor_);
}

PsRound::~PsRound() {
  if (holds_parameters_) board_->remove(tensor_);
}

Status PsRound::begin(const RoundInput& input, OperationQueue& next) {
  request_ = input.request;
  staleness_ = 0;
  return exchange_->begin(input, next);
}

void PsRound::finished() {
  exchange_->finished();
  if (!holds_parameters_ || request_.pull_only) return;
  board_->post(tensor_, staleness_);
  traffic_->staleness.observe(staleness_);
}

// The gauge of a compressed tensor sums between agents.
void PsRound::complete(FrameHeader& header, const CollectiveOperation& operation) const {
  const CollectivePlan& plan = operation.plan();
  if (plan.algorithm != Algorithm::kShards) return;
  header.source = push_source(plan);
  const bool writes = plan.parameters && writes_optimizer_state(header.source);
  if (writes) header.codec = static_cast<uint8_t>(CodecId::kDense);  // as the rounds before any
}

// The header field `source` of a push to a shard.
uint32_t PsRound::push_source(const CollectivePlan& plan) const {
  if (!reduces(plan.kind) && !plan.parameters)
    return std::bit_cast<uint32_t>(request_.residual_scale);
  return request_.pull_only ? request_.pull_source
                            : std::bit_cast<uint32_t>(request_.learning_rate);
}

void PsRound::received(const FrameHeader& header, const CollectiveOperation& operation) {
  if (operation.plan().algorithm == Algorithm::kShards)
    staleness_ = std::max(staleness_, header.source);
}

// Without a second copy, a part of the tensor is on this shard only.
bool PsRound::needs(uint32_t peer) const {
  if (replaced_ || replicas_ > 1 || peer < first_peer_) return false;
  if (shards_.members == nullptr) return peer < first_peer_ + shards_.shards;
  return std::ranges::count(*shards_.members, peer - first_peer_) > 0;
}

}  // namespace gradbus
