#include "worker_agent/collectives/broadcast.h"

namespace gradbus {
namespace {

bool is_root(const CollectivePlan& plan) {
  return plan.agent_of_rank.at(plan.root) == plan.agent_index;
}

bool is_last(const CollectivePlan& plan) {
  return plan.agent_of_rank.at(plan.root) == (plan.agent_index + 1) % plan.agents;
}

}  // namespace

Broadcast::Broadcast(const CollectivePlan& plan)
    : BlockRing(plan, {.receives = !is_root(plan), .sends = !is_last(plan)}, 1,
                dtype_bytes(plan.dtype)),
      sends_(!is_last(plan)) {}

void Broadcast::open_round(std::span<const uint64_t>, std::vector<Action>& actions) {
  close_all_blocks();
  if (is_root(plan())) open_own_block(0, plan().count * dtype_bytes(plan().dtype), actions);
}

Status Broadcast::check_block(const FrameHeader& header) const {
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "source", header.source, 0));
  return expect_field(header, "total", header.total, plan().count);
}

}  // namespace gradbus
