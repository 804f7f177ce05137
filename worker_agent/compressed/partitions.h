// The kinds of compressed partitions, one file each; partition.h describes them. The caller has
// checked that the codec supports the plan.
#pragma once

#include <memory>

#include "worker_agent/compressed/partition.h"

namespace gradbus {

class DevicePartitions;

std::unique_ptr<CompressedPartition> make_all_gather(PartitionPlan plan);
std::unique_ptr<CompressedPartition> make_device_partition(PartitionPlan plan,
                                                           DevicePartitions& device);
std::unique_ptr<CompressedPartition> make_async_ps(PartitionPlan plan);
std::unique_ptr<CompressedPartition> make_owner_reduce(PartitionPlan plan);
std::unique_ptr<CompressedPartition> make_ps_sync(PartitionPlan plan);
std::unique_ptr<CompressedPartition> make_all_reduce(PartitionPlan plan);
std::unique_ptr<CompressedPartition> make_sparse_all_reduce(PartitionPlan plan);

// codec.check(); the error names the agent.
Status check_payload(const Codec& codec, std::span<const std::byte> payload, size_t count,
                     uint32_t agent);

}  // namespace gradbus
