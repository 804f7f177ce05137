#include "worker_agent/collectives/all_gather.h"

#include "common/check.h"

namespace gradbus {

AllGather::AllGather(const CollectivePlan& plan)
    : BlockRing(plan, RingEdges{}, static_cast<uint32_t>(plan.agent_of_rank.size()), 1) {}

bool AllGather::is_own(uint32_t source) const {
  return plan().agent_of_rank[source] == plan().agent_index;
}

bool AllGather::forwards(uint32_t source) const {
  return plan().agent_of_rank[source] != (plan().agent_index + 1) % plan().agents;
}

void AllGather::open_round(std::span<const uint64_t> block_bytes, std::vector<Action>& actions) {
  GRADBUS_CHECK(block_bytes.size() == plan().agent_of_rank.size());
  close_all_blocks();
  for (uint32_t rank = 0; rank < block_bytes.size(); ++rank) {
    if (is_own(rank)) open_own_block(rank, block_bytes[rank], actions);
  }
}

Status AllGather::check_block(const FrameHeader& header) const {
  const uint64_t world = plan().agent_of_rank.size();
  const uint64_t element_bytes = dtype_bytes(plan().dtype);
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "source", header.source, world));
  if (is_own(header.source)) {
    return refuse(header, "source is " + std::to_string(header.source) + ", a rank of this agent");
  }
  GRADBUS_RETURN_IF_ERROR(
      expect_below(header, "total", header.total, plan().count * element_bytes + 1));
  return expect_field(header, "total % element bytes", header.total % element_bytes, 0);
}

}  // namespace gradbus
