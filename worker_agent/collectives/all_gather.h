// Ring all-gather of blocks of different lengths: each goes once around, from its rank's agent to
// that agent's predecessor. A block's length is in every frame of it; a block of no bytes is one
// empty frame.
#pragma once

#include <vector>

#include "worker_agent/collectives/block_ring.h"

namespace gradbus {

class AllGather final : public BlockRing {
 public:
  explicit AllGather(const CollectivePlan& plan);

 protected:
  void open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) override;
  bool forwards(uint32_t source) const override;
  Status check_block(const FrameHeader& header) const override;

 private:
  bool is_own(uint32_t source) const;
};

}  // namespace gradbus
