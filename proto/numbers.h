// Numbers that cross a process or machine boundary: collectives, algorithms, codecs, limits. Dtypes
// are in common/dtype.h, reduce operations in common/reduce_op.h.
//
// The numbers are append-only. A number is never reused and never changes its meaning. Readers
// refuse unknown numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "common/dtype.h"
#include "common/reduce_op.h"

namespace gradbus {

enum class CollectiveKind : uint8_t {
  kAllReduce = 1,
  kBroadcast = 2,
  kAllGather = 3,
  kReduce = 4,  // the root gets the result; the rank buffers of other ranks are undefined then
  kReduceScatter = 5,  // rank r gets shard r (proto/chunk_plan.h)
  kGather = 6,         // the root gets all blocks
  kScatter = 7,        // rank r gets the root's block r
  kAllToAll = 8,       // rank r gets block r of every rank
};

// Collectives that combine values have one rank buffer per local rank. The others move blocks.
constexpr bool reduces(CollectiveKind kind) {
  return kind == CollectiveKind::kAllReduce || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kReduceScatter;
}
// The number of blocks of a kind that moves them. Broadcast has 1, all-to-all world_size^2 (block s
// * world_size + d goes from rank s to rank d), the others one per rank.
constexpr uint64_t block_count(CollectiveKind kind, uint64_t world_size) {
  if (kind == CollectiveKind::kBroadcast) return 1;
  return kind == CollectiveKind::kAllToAll ? world_size * world_size : world_size;
}
constexpr bool has_root(CollectiveKind kind) {
  return kind == CollectiveKind::kBroadcast || kind == CollectiveKind::kReduce ||
         kind == CollectiveKind::kGather || kind == CollectiveKind::kScatter;
}

// What the agents do between nodes. The plan selects one per tensor, the same on every agent.
enum class Algorithm : uint8_t {
  kAuto = 0,  // not a plan: "let the cost model choose"
  kRing = 1,  // agent c % agents owns chunk c: least bytes, 2 (agents - 1) hops
  // The last agent owns every chunk: one order of additions for all elements, with any chunk size.
  kChain = 2,
  kHalvingDoubling = 3,    // binomial trees, one root per chunk: least bytes, 2 log2(agents) hops
  kRecursiveDoubling = 4,  // whole tensors in log2(agents) exchanges: fewest hops, no credits
  kTree = 5,               // binomial tree from the root
  kDirect = 6,             // each block directly from its source to its destinations
  kShards = 7,             // each chunk to its shard and back: modes ps:*, never chosen by cost
};

// The codecs in compression/registry.h.
enum class CodecId : uint8_t {
  kDense = 0,  // elements as they are, little-endian
  kFp16 = 1,
  kBf16 = 2,
  kFp8 = 3,
  kInt8 = 4,
  kInt4 = 5,
  kTopK = 6,
  kDgc = 7,
  kRandK = 8,
  kThreshold = 9,
  kQsgd = 10,
  kTernGrad = 11,
  kSignSgd = 12,
  kEfSignSgd = 13,
  kOneBit = 14,
  kSignum = 15,
  kNatural = 16,
  kPowerSgd = 17,
  kBlockTopK = 18,
  kRows = 19,
};

// The state that an agent keeps for a compressed tensor between rounds. The effective state is the
// sum over agents. So it can be added up and distributed to any number of agents.
enum class ResidualStatePart : uint8_t { kResidual = 0, kMomentum = 1 };
inline constexpr uint32_t kResidualStateParts = 2;

inline constexpr uint32_t kRanksMax = 4096;      // per job
inline constexpr uint32_t kLocalRanksMax = 128;  // per job and node
inline constexpr uint32_t kTensorNameBytesMax = 255;
inline constexpr uint32_t kJobNameBytesMax = 127;
inline constexpr uint32_t kCompressionBytesMax = 255;  // text of compression/spec.h
inline constexpr uint32_t kModeBytesMax = 255;         // text of common/policy/sync_mode.h
inline constexpr uint32_t kShapeBytesMax = 255;        // text of shared_memory/tensor_spec.h
inline constexpr uint32_t kPriorityMax = 1 << 20;      // of a tensor's frames; 0 is the most urgent
inline constexpr uint32_t kTensorsMax = 1u << 20;      // per job
inline constexpr uint64_t kTensorBytesMax = 1ull << 40;

constexpr bool is_collective(uint32_t number) { return number >= 1 && number <= 8; }
constexpr bool is_algorithm(uint32_t number) { return number <= 7; }
constexpr bool is_codec(uint32_t number) { return number <= 19; }

// "all_reduce", "ring"; "?" for an unknown number.
std::string_view collective_name(CollectiveKind kind);
std::string_view algorithm_name(Algorithm algorithm);

}  // namespace gradbus
