// Rounds of a tensor on parameter-server shards, around those of its elements or payloads. Shards
// sum it, or hold its parameters. Then their answers say how stale this node's parameters were.
#pragma once

#include <memory>

#include "worker_agent/job/worker_commands.h"
#include "worker_agent/rounds/tensor_round.h"

namespace gradbus {

class PsRound final : public TensorRound {
 public:
  // `add` has a PsPlan. `exchange`: carries elements or payloads to the shards and back.
  PsRound(const StartJob& job, const AddTensor& add, std::unique_ptr<TensorRound> exchange);
  ~PsRound() override;

  Operations operations() const override { return exchange_->operations(); }
  Status begin(const RoundInput& input, OperationQueue& next) override;
  Status chunk_summed(uint32_t chunk, OperationQueue& next) override {
    return exchange_->chunk_summed(chunk, next);
  }
  Status ended(const CollectiveOperation& operation, OperationQueue& next) override {
    return exchange_->ended(operation, next);
  }
  bool waits() const override { return exchange_->waits(); }
  Status resume(OperationQueue& next) override { return exchange_->resume(next); }
  bool done() const override { return exchange_->done(); }
  void finished() override;

  bool has_residual_state() const override { return exchange_->has_residual_state(); }
  bool has_optimizer_state() const override { return holds_parameters_; }
  void take_residual_state(TensorRound& other) override { exchange_->take_residual_state(other); }
  CompressedTensor* compressed() override { return exchange_->compressed(); }
  void replaced() override { replaced_ = true; }

  void complete(FrameHeader& header, const CollectiveOperation& operation) const override;
  void received(const FrameHeader& header, const CollectiveOperation& operation) override;
  uint32_t staleness() const override { return staleness_; }
  bool needs(uint32_t peer) const override;

 private:
  uint32_t push_source(const CollectivePlan& plan) const;

  const std::unique_ptr<TensorRound> exchange_;
  const std::shared_ptr<JobTraffic> traffic_;
  const std::shared_ptr<StalenessBoard> board_;
  const uint32_t tensor_;
  const bool holds_parameters_;
  const uint32_t replicas_;
  const uint32_t first_peer_;  // shard 0
  const ShardSet shards_;
  RoundRequest request_;
  uint32_t staleness_ = 0;
  bool replaced_ = false;
};

}  // namespace gradbus
