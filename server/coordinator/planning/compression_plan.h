// How a compressed tensor travels: its communicator, and the partitions it is cut into. Pure.
//
//   * a codec that can be summed on the way is: every byte is sent twice, however many agents;
//   * else payloads are gathered by everybody, (agents - 1) payloads each, or, where that costs
//     more, by owners of slices who send the sum out again: 2 payloads each, two codings more.
//     Codecs that select are never re-encoded by choice: the second selection would drop most of
//     the sum. Rows are gathered, too: what others' are together may be all of them;
//   * on shards (modes ps:*) each partition goes to the shard that holds it, and all hold about as
//     many elements;
//   * partitions of 2^20 elements overlap coding and sending; codecs that look at the whole get
//     it, but for owned slices.
#pragma once

#include "common/status.h"
#include "compression/spec.h"
#include "server/coordinator/planning/planner.h"

namespace gradbus {

// Whether a tensor can be exchanged so: GB-O910 naming what does not fit.
Status check_compression(const v1::TensorSpec& spec);

// `spec` passed check_compression() and is not dense; `size.agents` > 1, `spec.count()` > 0.
TensorPlan plan_compressed(const v1::TensorSpec& spec, const CompressionSpec& compression,
                           const JobSize& size, const PlanOptions& options);

// Of a tensor whose mode is one of shards; `spec.count()` > 0.
TensorPlan plan_ps_sync(const v1::TensorSpec& spec, const CompressionSpec& compression,
                        const ShardCount& shards, const PlanOptions& options);

}  // namespace gradbus
