// How the elements of a reducing tensor are divided. It has one shard per rank for reduce-scatter,
// else one shard. Each shard is divided into chunks, the unit of pipelining. This is pure
// arithmetic; every process of a job gets the same result.
//
// Shards are whole rows of `row_elements`, as equal as possible: the first (rows % shards) have one
// row more. All shards have the same number of chunks, so the last chunks of a shorter shard may be
// empty.
#pragma once

#include <algorithm>
#include <cstdint>

namespace gradbus {

struct ChunkRange {
  uint64_t first = 0;  // first element in the tensor
  uint64_t elements = 0;
  uint32_t shard = 0;
};

struct ChunkPlan {
  uint64_t count = 0;         // elements of the tensor: a multiple of row_elements
  uint64_t row_elements = 1;  // elements per row; a row is never divided between shards
  uint32_t shards = 1;
  uint64_t chunk_elements = 1;

  uint64_t shard_first(uint32_t shard) const {
    const uint64_t rows = count / row_elements;
    return (shard * (rows / shards) + std::min<uint64_t>(shard, rows % shards)) * row_elements;
  }
  uint64_t shard_elements(uint32_t shard) const {
    return shard_first(shard + 1) - shard_first(shard);
  }
  uint32_t chunks_per_shard() const {
    const uint64_t most = shard_elements(0);
    return static_cast<uint32_t>(
        std::max<uint64_t>((most + chunk_elements - 1) / chunk_elements, 1));
  }
  // At least 1: a round without elements still has one, empty, chunk.
  uint32_t chunks() const { return shards * chunks_per_shard(); }

  ChunkRange range(uint32_t chunk) const {
    if (shards == 1) return cut(chunk, 0, count, 0);
    const uint32_t shard = chunk / chunks_per_shard();
    return cut(chunk % chunks_per_shard(), shard_first(shard), shard_elements(shard), shard);
  }

 private:
  ChunkRange cut(uint64_t index, uint64_t first, uint64_t elements, uint32_t shard) const {
    const uint64_t begin = std::min(index * chunk_elements, elements);
    return {first + begin, std::min(chunk_elements, elements - begin), shard};
  }
};

}  // namespace gradbus
