#include "data_plane/collectives/collective.h"

#include "common/check.h"
#include "data_plane/collectives/block_exchange.h"
#include "data_plane/collectives/nccl_turns.h"
#include "data_plane/collectives/payload_push_pull.h"
#include "data_plane/collectives/push_pull.h"
#include "data_plane/collectives/recursive_doubling.h"
#include "data_plane/collectives/tree_reduction.h"
#include "proto/algorithms.h"

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
