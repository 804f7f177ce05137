// Broadcast: a pipelined chain from the root's agent to its predecessor; the last edge of the ring
// stays unused, in both directions.
#pragma once

#include <vector>

#include "worker_agent/collectives/block_ring.h"

namespace gradbus {

class Broadcast final : public BlockRing {
 public:
  explicit Broadcast(const CollectivePlan& plan);

 protected:
  void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) override;
  bool forwards(uint32_t) const override { return sends_; }
  Status check_block(const FrameHeader& header) const override;

 private:
  const bool sends_;
};

}  // namespace gradbus
