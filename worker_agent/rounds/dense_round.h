// Rounds of a dense tensor: one collective operation on its elements in the rank buffers.
#pragma once

#include <array>
#include <memory>

#include "worker_agent/job/worker_commands.h"
#include "worker_agent/rounds/tensor_round.h"

namespace gradbus {

class DenseRound final : public TensorRound {
 public:
  // `region`: the memory of `add.segment` for the transport.
  DenseRound(const StartJob& job, const AddTensor& add, RegionId region);

  Operations operations() const override { return operations_; }
  Status begin(const RoundInput& input, OperationQueue& next) override;
  Status chunk_summed(uint32_t chunk, OperationQueue& next) override;
  Status ended(const CollectiveOperation& operation, OperationQueue& next) override;
  bool done() const override { return done_; }

 private:
  std::array<std::unique_ptr<CollectiveOperation>, 1> operations_;
  bool done_ = true;
};

}  // namespace gradbus
