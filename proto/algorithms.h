// Which algorithms can carry out which collective. The planner and the agents accept no others.
// Shards are not in this table: the mode of an all-reduce selects them.
#pragma once

#include "common/dtype.h"
#include "common/reduce_op.h"
#include "proto/numbers.h"

namespace gradbus {

constexpr bool fits(CollectiveKind kind, Algorithm algorithm) {
  using A = Algorithm;
  const bool path = algorithm == A::kRing || algorithm == A::kChain;
  switch (kind) {
    case CollectiveKind::kAllReduce:
      return algorithm != A::kAuto && algorithm != A::kDirect && algorithm != A::kShards;
    case CollectiveKind::kReduce: return path || algorithm == A::kTree;
    case CollectiveKind::kReduceScatter: return path || algorithm == A::kHalvingDoubling;
    case CollectiveKind::kBroadcast:
      return path || algorithm == A::kTree || algorithm == A::kDirect;
    case CollectiveKind::kAllGather:
      return algorithm == A::kRing || algorithm == A::kTree || algorithm == A::kDirect;
    case CollectiveKind::kGather:
    case CollectiveKind::kScatter:
    case CollectiveKind::kAllToAll: return algorithm == A::kDirect;
  }
  return false;
}

// The result has the same bits in every run and for every chunk size. Trees add blocks of their
// children in the order of arrival. In a ring the order of additions depends on the chunk.
constexpr bool is_deterministic(CollectiveKind kind, Algorithm algorithm) {
  return !reduces(kind) || algorithm == Algorithm::kChain ||
         algorithm == Algorithm::kRecursiveDoubling;
}

// NCCL may carry out sums of gradients, because it adds them in the same way. Its minimum treats
// NaN differently, for example, and it has no 16-bit integers. NCCL is not an Algorithm. It
// replaces the algorithm of a tensor that is on GPUs of all nodes.
constexpr bool may_go_by_nccl(CollectiveKind kind, DType dtype, ReduceOp op) {
  const bool sums = op == ReduceOp::kSum || op == ReduceOp::kAverage;
  const bool integer =
      dtype == DType::kI32 || dtype == DType::kI64 || dtype == DType::kU32 || dtype == DType::kU64;
  return kind == CollectiveKind::kAllReduce && sums && (is_float(dtype) || integer);
}

}  // namespace gradbus
