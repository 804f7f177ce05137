// Rounds that end on the node: GPUs have summed (local_sum.h), or the ranks do it without the agent
// and the engine begins no round.
#pragma once

#include "worker_agent/rounds/tensor_round.h"

namespace gradbus {

class NodeRound final : public TensorRound {
 public:
  Operations operations() const override { return {}; }
  Status begin(const RoundInput&, OperationQueue&) override { return {}; }
  Status chunk_summed(uint32_t, OperationQueue&) override { return {}; }
  Status ended(const CollectiveOperation&, OperationQueue&) override { return {}; }
  bool done() const override { return true; }
};

}  // namespace gradbus
