// How a compressed tensor travels: its communicator, and the partitions it is cut into. Pure.
//
//   * If payloads of the codec can be summed, they are summed on the way. Every byte is then sent
//     twice, for any number of agents.
//   * Else every agent gathers all payloads, agents - 1 each. Where that costs more, owners of
//     slices gather them and send the sum: 2 payloads each, and two codings more. Selecting codecs
//     are not re-encoded unless the user asks for it, because a second selection would drop most
//     of the sum. Rows are gathered too, because the rows of all agents together may be all rows.
//   * On shards (modes ps:*) each partition goes to the shard that holds it. All shards hold about
//     equally many elements.
//   * Partitions have 2^20 elements, so that coding and sending overlap. Codecs that need the whole
//     tensor get it in one partition, except for owned slices.
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
