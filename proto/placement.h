// Which shard of a parameter server holds which chunk, and which one has its copy. Every agent and
// shard of a job computes it alike from the pattern that the job's start brings.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

namespace gradbus {

// The shards of consecutive chunks, over and over; a shard that takes no part is not in it. None:
// equal parts, which is the pattern 0 .. shards - 1. server/shard_shares.h makes it.
using PlacementPattern = std::shared_ptr<const std::vector<uint16_t>>;

// Which of the job's shards the numbers of a pattern are, by place; those of a pattern alone are
// places. None: the first ones, which are those that the job began with.
using ShardMembers = std::shared_ptr<const std::vector<uint16_t>>;

// Of patterns, and of shards in one.
inline constexpr uint32_t kPlacementEntriesMax = 4096;

// Of `shards` (at least 1), all of the pattern's below it. Neighbouring chunks lie on different
// shards where the pattern's neighbours do, and so do the first chunks of neighbouring tensors: a
// large tensor is spread as the pattern says, and so are many small ones.
inline uint32_t shard_of(uint32_t tensor, uint32_t chunk, uint32_t shards,
                         const PlacementPattern& pattern) {
  const uint64_t at = uint64_t{tensor} + chunk;
  return pattern == nullptr ? static_cast<uint32_t>(at % shards) : (*pattern)[at % pattern->size()];
}

// The same of a tensor whose chunks all lie on one. Layers come in turns, a large weight and a
// small bias, so neighbouring entries would give a shard all of one kind: entries follow multiples
// of the golden ratio instead, of which every second, third, ... are as even as all.
inline uint32_t shard_of_whole(uint32_t tensor, uint32_t shards, const PlacementPattern& pattern) {
  const uint64_t share = tensor * uint64_t{0x9E3779B97F4A7C15} >> 32;  // of 2^32
  const uint64_t entries = pattern == nullptr ? shards : pattern->size();
  const uint64_t at = share * entries >> 32;
  return pattern == nullptr ? static_cast<uint32_t>(at) : (*pattern)[at];
}

// Where the second copy of what `shard` holds is, with mode option replicas=2 (at least 2 shards).
constexpr uint32_t backup_of(uint32_t shard, uint32_t shards) { return (shard + 1) % shards; }
// Whose second copy `shard` has.
constexpr uint32_t backed_up_by(uint32_t shard, uint32_t shards) {
  return (shard + shards - 1) % shards;
}

}  // namespace gradbus
