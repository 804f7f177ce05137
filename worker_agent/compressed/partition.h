// A partition of a compressed tensor. It has the codec, the state and the payloads of its elements,
// and the collective operations that carry the payloads between agents. There are six kinds, by
// communicator, mode and codec:
//
//   allgather  AllGather        every agent gets every agent's payload, decodes and sums them
//                               (all-gather)
//   ps         OwnerReduce      one agent gets all payloads, sums them and encodes the sum again
//                               (gather, all-gather)
//   ps         PsSync           mode ps:sync: the same on a parameter-server shard, which keeps the
//                               residual of its encoding (one operation with it)
//   ps         AsyncPs          modes ps:async, ps:ssp, ps:quorum: a shard applies the payload to
//                               its parameters, and sends their difference from this agent's
//                               parameters (one operation with it)
//   allreduce  AllReduce        linear codecs: payloads are dense vectors that an all-reduce adds
//                               (all-reduce, 1 or 2 rounds)
//   allreduce  SparseAllReduce  selecting codecs: each agent merges the entries of a range of
//                               elements (all-to-all, all-gather)
//
// On a GPU there are AllGather, OwnerReduce and AllReduce (device_partition.cc).
//
// All agents decode the same bytes in the same order, so all get the same bits.
//
// Engine thread only. The order of calls in a round: start() when the node's sum is in the first
// rank buffer, then advance(i) when operation i has ended, for all operations. Allocates at
// construction, and in write_residual_state().
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "compression/error_feedback.h"
#include "data_plane/collective_operation.h"
#include "data_plane/partition_plan.h"
#include "proto/shm_layout.h"

namespace gradbus {

class CompressedPartition {
 public:
  virtual ~CompressedPartition() = default;

  // One per operation, in order.
  std::span<const Stage> stages() const { return stages_; }
  // Called before the first round: sets the operation of `stage` and its memory.
  void attach(size_t stage, CollectiveOperation* operation, std::span<std::byte> memory);

  // Called before start(), when the round begins. On a GPU it does all work before start().
  // `exchanges`: whether start() will follow.
  virtual Status prepare(uint64_t /*round*/, bool /*exchanges*/) { return {}; }
  // Encodes the first rank buffer. Returns the block lengths of the first operation by agent (kinds
  // that move blocks). If shards hold parameters, the ranks may have no gradient but `pull`:
  // request the parameters, or read or write another part of the state.
  std::span<const uint64_t> start(uint64_t round, PsRequest pull = PsRequest::kNone);
  // Operation `stage` has ended: decodes or encodes, and returns the input of the next one. After
  // the last operation the result is in all rank buffers. GB-D611 for an invalid payload; names its
  // agent.
  virtual Result<std::span<const uint64_t>> advance(size_t stage) = 0;
  // A GPU computes the data of the next operation. advance() has returned nothing; resume() returns
  // it when it is ready. Until then the partition waits.
  bool waits() const { return waits_; }
  virtual Result<std::span<const uint64_t>> resume() { return std::span<const uint64_t>(); }

  // ---- between rounds: the state of this agent, in one rank buffer for all parts
  //
  // Copies the part into the first rank buffer; the other rank buffers become 0, because their sum
  // counts. A missing part reads as 0.
  virtual Status read_residual_state(ResidualStatePart part);
  // Reads the part from the first rank buffer, which contains the sum of the rank buffers. Without
  // a residual, the values go into the next round's sum, so nothing is lost. Without a momentum
  // they are dropped.
  virtual Status write_residual_state(ResidualStatePart part);
  virtual Status scale_residual_state(float factor);
  double residual_norm();
  // Copies the state of these elements from `from`, a partition of the same tensor.
  void take_residual_state(CompressedPartition& from, uint64_t first, uint64_t here,
                           uint64_t elements);
  uint64_t elements() const { return plan_.count; }
  // A codec's warm-up counts these in addition to its rounds here.
  void count_as_made(uint64_t rounds) { rounds_before_ = rounds; }

 protected:
  explicit CompressedPartition(PartitionPlan plan);

  // Like start().
  virtual std::span<const uint64_t> encode(uint64_t round) = 0;
  // For codecs with their own state.
  virtual std::span<float> codec_momentum() { return {}; }
  // The residual of an owner's second encoding, on the agent that owns the partition.
  virtual std::span<float> owner_residual() { return {}; }
  ErrorFeedback& error_feedback() { return error_feedback_; }
  PsRequest ps_request() const { return ps_request_; }
  void set_waits(bool waits) { waits_ = waits; }

  void add_stage(Stage stage);
  const PartitionPlan& plan() const { return plan_; }
  std::span<std::byte> vector(size_t stage) const;
  std::span<std::byte> own_block(size_t stage) const;
  std::span<const std::byte> block(size_t stage, uint32_t agent) const;
  std::span<const uint64_t> lengths(uint64_t own_bytes);
  // All-to-all: block from * agents + to. Blocks that this agent sends have a length per target.
  std::span<std::byte> block_memory(size_t stage, uint32_t index) const;
  std::span<const std::byte> received(size_t stage, uint32_t index, uint32_t from) const;
  bool came_dense(size_t stage) const { return attached_[stage].operation->came_dense(); }
  void set_length(uint32_t to, uint64_t bytes) { lengths_[to] = bytes; }
  std::span<const uint64_t> all_lengths() const { return lengths_; }
  std::span<float> first_rank_buffer() const { return {plan_.rank_buffers[0], plan_.count}; }
  // The seed of random numbers: equal on all agents, or this agent's own.
  uint64_t shared_seed(uint64_t round) const;
  uint64_t own_seed(uint64_t round) const;
  // The number of the round for the codec's warm-up.
  uint64_t codec_round(uint64_t round) const { return round + rounds_before_; }
  // Copies the first rank buffer to the others.
  void publish() const;

 private:
  struct Attached {
    CollectiveOperation* operation = nullptr;
    std::span<std::byte> memory;
  };
  std::span<float> part(ResidualStatePart part);

  const PartitionPlan plan_;
  ErrorFeedback error_feedback_;
  PsRequest ps_request_ = PsRequest::kNone;
  bool waits_ = false;
  uint64_t rounds_before_ = 0;
  std::vector<float> carried_;  // written values without a residual to keep them
  std::vector<Stage> stages_;
  std::vector<Attached> attached_;
  std::vector<uint64_t> lengths_;
};

// Makes the kind that the plan's communicator requires. The caller has checked that the codec
// supports it.
std::unique_ptr<CompressedPartition> make_partition(PartitionPlan plan);

}  // namespace gradbus
