#include "worker_agent/collectives/collective.h"

#include "common/check.h"
#include "proto/algorithms.h"
#include "worker_agent/collectives/block_exchange.h"
#include "worker_agent/collectives/nccl_turns.h"
#include "worker_agent/collectives/payload_push_pull.h"
#include "worker_agent/collectives/push_pull.h"
#include "worker_agent/collectives/recursive_doubling.h"
#include "worker_agent/collectives/tree_reduction.h"

namespace gradbus {

std::unique_ptr<Collective> make_collective(const CollectivePlan& plan) {
  if (plan.algorithm == Algorithm::kShards && reduces(plan.kind))
    return std::make_unique<PushPull>(plan);
  if (plan.algorithm == Algorithm::kShards) return std::make_unique<PayloadPushPull>(plan);
  if (plan.by_nccl) return std::make_unique<NcclTurns>(plan);
  GRADBUS_CHECK(fits(plan.kind, plan.algorithm));
  if (plan.algorithm == Algorithm::kRecursiveDoubling)
    return std::make_unique<RecursiveDoubling>(plan);
  if (reduces(plan.kind)) return std::make_unique<TreeReduction>(plan);
  return std::make_unique<BlockExchange>(plan);
}

}  // namespace gradbus
