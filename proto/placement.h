// Which shard of a parameter server holds which chunk, and which shard has its copy. Every agent
// and shard of a job computes the same result from the pattern in JobStarted or ShardsChanged.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace gradbus {

// The shards of consecutive chunks, repeated. A shard without chunks is not in it. Null means equal
// parts, which is the pattern 0 .. shards - 1. server/coordinator/planning/shard_shares.h makes
// patterns.
using PlacementPattern = std::shared_ptr<const std::vector<uint16_t>>;

// Maps the places in a pattern to the job's shards. Null means the first shards, which are those
// that existed when the job started.
using ShardMembers = std::shared_ptr<const std::vector<uint16_t>>;

// The maximum of patterns, and of shards in one.
inline constexpr uint32_t kPlacementEntriesMax = 4096;

// `shards` is at least 1, and all entries of the pattern are below it. Neighbouring chunks are on
// different shards where the pattern's neighbours differ. So are the first chunks of neighbouring
// tensors. So the pattern spreads a large tensor, and many small tensors, in the same proportion.
inline uint32_t shard_of(uint32_t tensor, uint32_t chunk, uint32_t shards,
                         const PlacementPattern& pattern) {
  const uint64_t at = uint64_t{tensor} + chunk;
  return pattern == nullptr ? static_cast<uint32_t>(at % shards) : (*pattern)[at % pattern->size()];
}

// The same for a tensor whose chunks are all on one shard. Layers alternate, a large weight and a
// small bias, so neighbouring entries would give a shard all of one kind. The index is therefore a
// multiple of the golden ratio. Every second, third, ... of those multiples is spread as evenly as
// all of them.
inline uint32_t shard_of_whole(uint32_t tensor, uint32_t shards, const PlacementPattern& pattern) {
  const uint64_t share = tensor * uint64_t{0x9E3779B97F4A7C15} >> 32;  // a fraction of 2^32
  const uint64_t entries = pattern == nullptr ? shards : pattern->size();
  const uint64_t at = share * entries >> 32;
  return pattern == nullptr ? static_cast<uint32_t>(at) : (*pattern)[at];
}

// The shard with the second copy of `shard`, with mode option replicas=2 (at least 2 shards).
constexpr uint32_t backup_of(uint32_t shard, uint32_t shards) { return (shard + 1) % shards; }
// The shard whose second copy is on `shard`.
constexpr uint32_t backed_up_by(uint32_t shard, uint32_t shards) {
  return (shard + shards - 1) % shards;
}

}  // namespace gradbus
