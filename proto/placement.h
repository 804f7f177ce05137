// Which shard of a parameter server holds which chunk, and which one has its copy. Every agent and
// shard of a job computes it alike, so no table is sent.
#pragma once

#include <cstdint>

namespace gradbus {

// Of `shards` (at least 1). Neighbouring chunks lie on different shards, and the first chunks of
// neighbouring tensors do: a large tensor is spread evenly, and so are many small ones.
constexpr uint32_t shard_of(uint32_t tensor, uint32_t chunk, uint32_t shards) {
  return static_cast<uint32_t>((uint64_t{tensor} + chunk) % shards);
}

// Where the second copy of what `shard` holds is, with mode option replicas=2 (at least 2 shards).
constexpr uint32_t backup_of(uint32_t shard, uint32_t shards) { return (shard + 1) % shards; }
// Whose second copy `shard` has.
constexpr uint32_t backed_up_by(uint32_t shard, uint32_t shards) {
  return (shard + shards - 1) % shards;
}

}  // namespace gradbus
