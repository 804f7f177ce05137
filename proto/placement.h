// Which shard of a parameter server holds which chunk. Every agent and shard of a job computes it
// alike, so no table is sent.
#pragma once

#include <cstdint>

namespace gradbus {

// Of `shards` (at least 1). Neighbouring chunks lie on different shards, and the first chunks of
// neighbouring tensors do: a large tensor is spread evenly, and so are many small ones.
constexpr uint32_t shard_of(uint32_t tensor, uint32_t chunk, uint32_t shards) {
  return static_cast<uint32_t>((uint64_t{tensor} + chunk) % shards);
}

}  // namespace gradbus
