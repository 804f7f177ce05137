// The rounds of one tensor between nodes: which collective operations they take, and in which
// order. The engine's job calls it, and knows no kind of tensor:
//
//   NodeRound         nothing leaves the node: a GPU has summed, and the round is over
//   DenseRound        one operation on the elements
//   CompressedTensor  partitions, with operations on their payloads, on the processor or a GPU
//                     (worker_agent/compressed)
//   PsRound           around one of these two: parameter-server shards sum or hold the parameters
//
// Who sums the ranks of the node is the other part of a round: local_sum.h.
//
// The order of calls in a round: begin(), chunk_summed() for each chunk in order, ended() for each
// operation that `next` has started, and finished() when done(). Engine thread only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>

#include "common/status.h"
#include "data_plane/collective_operation.h"
#include "proto/frame.h"
#include "proto/shm_layout.h"
#include "worker_agent/rounds/operation_queue.h"

namespace gradbus {

class CompressedTensor;

// The request of a node's ranks for a round.
struct RoundRequest {
  SubmissionKind kind = SubmissionKind::kPosted;
  ResidualStatePart part = ResidualStatePart::kResidual;  // kReadResidualState, kWriteResidualState
  float residual_scale = 1;                               // kPosted
  float learning_rate = 0;                                // kPosted
  bool pull_only = false;                                 // kPosted
  uint32_t pull_source = kPullOnly;  // pull_only: header field `source` of a push to a shard
  uint64_t warm_up_round = 0;        // kPosted: number of this round for a warm-up; 0: the next

  // A rank without a share of the residual state may not know the round.
  void take_warm_up(RoundRequest& other) {
    warm_up_round = other.warm_up_round = std::max(warm_up_round, other.warm_up_round);
  }
  bool operator==(const RoundRequest&) const = default;
};

struct RoundInput {
  uint64_t number = 0;
  const RoundRequest& request;
  std::span<const uint64_t> block_bytes;  // kinds that move blocks: by rank
};

using Operations = std::span<const std::unique_ptr<CollectiveOperation>>;

class TensorRound {
 public:
  virtual ~TensorRound() = default;

  virtual Operations operations() const = 0;

  // ---- a round
  //
  // All local ranks have posted.
  virtual Status begin(const RoundInput& input, OperationQueue& next) = 0;
  // The node's sum of the next chunk is in the first rank buffer.
  virtual Status chunk_summed(uint32_t chunk, OperationQueue& next) = 0;
  virtual Status ended(const CollectiveOperation& operation, OperationQueue& next) = 0;
  // A GPU computes data for operations. It rings the engine; then resume() may start one of them.
  virtual bool waits() const { return false; }
  virtual Status resume(OperationQueue&) { return {}; }
  virtual bool done() const = 0;
  // The ranks are told next: reports what was measured.
  virtual void finished() {}

  // ---- state between rounds
  virtual bool has_residual_state() const { return false; }
  virtual bool has_optimizer_state() const { return false; }  // on shards
  // Called before the first round: this tensor replaces that of `other`, of the same elements.
  virtual void take_residual_state(TensorRound& /*other*/) {}
  virtual CompressedTensor* compressed() { return nullptr; }  // whose state that is
  // Another tensor has replaced this one, and has its data.
  virtual void replaced() {}

  // ---- shards
  //
  // Sets the fields of a frame that only shards read.
  virtual void complete(FrameHeader&, const CollectiveOperation&) const {}
  virtual void received(const FrameHeader&, const CollectiveOperation&) {}
  // The staleness of the round: the maximum that a shard has reported.
  virtual uint32_t staleness() const { return 0; }
  // Whether data is lost with this peer, a shard.
  virtual bool needs(uint32_t /*peer*/) const { return false; }
};

}  // namespace gradbus
