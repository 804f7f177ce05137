// Decides how a tensor is exchanged between agents: its algorithm, and its chunks, which are the
// unit of pipelining. The coordinator decides this once for all agents.
//
// Pure functions. A plan satisfies
//   * in deterministic mode the algorithm depends on nothing that was measured, nor on the chunk
//     size: both may differ from run to run;
//   * fits(kind, algorithm), and recursive doubling has one chunk;
//   * 1 <= chunk_elements, and chunk_elements * element bytes <= kFramePayloadBytesMax;
//   * chunk_elements is a multiple of 64 when a tensor (reduce-scatter: a shard) has more than one
//     chunk, so chunks start on cache lines;
//   * an all-reduce between A agents of at least A * kOwnerBytesMin whose chunks have rotating
//     owners (chunk c belongs to agent c % A) is cut so that they get equally many chunks: the
//     round ends when the busiest does.
#pragma once

#include <cstdint>
#include <string>

#include "common/status.h"
#include "compression/spec.h"
#include "gradbus/v1/coordinator.pb.h"
#include "server/coordinator/planning/cost_model.h"

namespace gradbus {

// Below this a chunk would cost more in headers and wake-ups than balance can win.
inline constexpr uint64_t kOwnerBytesMin = 16 << 10;

inline constexpr uint64_t kChunksPerShard = 32;

struct PlanOptions {
  uint64_t chunk_bytes = 0;                // to aim at; 0: what the path wants
  Algorithm algorithm = Algorithm::kAuto;  // for every tensor that it fits; the others: automatic
  bool deterministic = false;              // same bits in every run and for every chunk size
  bool nccl = false;                       // instead, for what is on GPUs of all nodes
  PathFigures told;                        // by the user: these win
  PathFigures measured;                    // between the agents of the job
};

struct JobSize {
  uint32_t agents = 1;
  uint32_t world = 1;  // at least as many ranks
};

struct TensorPlan {
  Algorithm algorithm = Algorithm::kRing;
  uint64_t chunk_elements = 1;
  // Compressed tensors:
  Communicator communicator = Communicator::kAuto;  // kAuto: it is dense
  uint64_t partition_elements = 0;                  // all, or a multiple of chunk_elements
  std::string why = {};  // of the algorithm and the communicator, for a person
};

// `spec` is valid (dtype known, bytes <= kTensorBytesMax).
TensorPlan plan_tensor(const v1::TensorSpec& spec, const JobSize& size, const PlanOptions& options);

struct ShardCount {
  uint32_t shards = 0;
  uint32_t period = 0;  // of the pattern of their chunks (proto/placement.h); equal parts: `shards`
};

// Of a tensor whose mode wants shards: chunks that they get as many of as the pattern says. In
// equal parts no shard gets more than another. Else the chunks are whole patterns where those are
// short, or so many (kChunksPerShard a shard) that one more or less does not matter: within 6 % of
// a mean part. A tensor of less than 16 KiB * kChunksPerShard for each shard has fewer chunks, so
// its own parts are coarser. Many such tensors together are even: each begins one entry further on.
TensorPlan plan_on_shards(const v1::TensorSpec& spec, const ShardCount& shards,
                          const PlanOptions& options);

// Of a tensor that `algorithm` exchanges; `chunk_bytes` is the target.
uint64_t plan_chunk_elements(const v1::TensorSpec& spec, const JobSize& size, uint64_t chunk_bytes,
                             Algorithm algorithm);

// "ring" -> kRing; GB-F100 for a name that there is not, or that `deterministic` rules out.
Result<Algorithm> parse_algorithm(const std::string& name, bool deterministic);

}  // namespace gradbus
