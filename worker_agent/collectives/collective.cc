#include "worker_agent/collectives/collective.h"

#include "common/check.h"
#include "worker_agent/collectives/all_gather.h"
#include "worker_agent/collectives/all_reduce.h"
#include "worker_agent/collectives/broadcast.h"

namespace gradbus {

std::unique_ptr<Collective> make_collective(const CollectivePlan& plan) {
  switch (plan.kind) {
    case CollectiveKind::kAllReduce: return std::make_unique<AllReduce>(plan);
    case CollectiveKind::kBroadcast: return std::make_unique<Broadcast>(plan);
    case CollectiveKind::kAllGather: return std::make_unique<AllGather>(plan);
  }
  GRADBUS_CHECK(is_collective(static_cast<uint32_t>(plan.kind)));
  return nullptr;
}

}  // namespace gradbus
