// The parts of a compressed tensor in addition to its local reduction: its partitions, their
// collective operations, and the memory of payloads.
//
// In a round, the chunks of the node's sum complete one after the other. A partition whose last
// chunk is complete starts its first operation at once. So encoding, sending and decoding of
// partitions overlap. Stage s of partition p is operation p * stages + s. One more operation, after
// all of these, carries the vector of the fidelity gauge.
//
// Rounds in which ranks read or write residuals exchange nothing. Operations do not count them, so
// agents may differ in their number.
//
// Engine thread only.
#pragma once

#include <array>
#include <memory>
#include <span>
#include <vector>

#include "data_plane/staging_memory.h"
#include "proto/frame.h"
#include "worker_agent/compressed/partition.h"
#include "worker_agent/job/fidelity.h"
#include "worker_agent/job/worker_commands.h"

namespace gradbus {

// An operation that starts, and the input of its round.
struct OperationStart {
  CollectiveOperation* operation = nullptr;  // null: none starts
  uint64_t round = 0;
  std::span<const uint64_t> block_bytes = {};
};
using OperationStarts = std::array<OperationStart, 2>;  // of a partition, and of the gauge

// The request of a node's ranks for a round.
struct RoundRequest {
  SubmissionKind kind = SubmissionKind::kPosted;
  ResidualStatePart part = ResidualStatePart::kResidual;  // kReadResidualState, kWriteResidualState
  float residual_scale = 1;                               // kPosted
  float learning_rate = 0;                                // kPosted
  bool pull_only = false;                                 // kPosted
  uint32_t pull_source = kPullOnly;  // pull_only: header field `source` of a push to a shard

  bool operator==(const RoundRequest&) const = default;
};

class CompressedTensor {
 public:
  // `rank_buffers`: the tensor's first element by local rank; empty if they are on GPUs
  // (add.device_partitions). S201 when address space runs out.
  static Result<std::unique_ptr<CompressedTensor>> create(const StartJob& job, const AddTensor& add,
                                                          std::vector<float*> rank_buffers,
                                                          Transport& transport);
  ~CompressedTensor();
  CompressedTensor(const CompressedTensor&) = delete;
  CompressedTensor& operator=(const CompressedTensor&) = delete;

  std::span<const std::unique_ptr<CollectiveOperation>> exchanges() const { return operations_; }

  // Called before the first round: copies the state of the partitions of the replaced tensor,
  // element by element.
  void take_residual_state(CompressedTensor& from);

  // ---- a round
  //
  // GB-D624: a GPU refuses work.
  Status begin(const RoundRequest& request);
  // The node's sum of the next chunk, in order, is complete. Returns the operations that start.
  // O901: the check (nan=stop) found a number that is not finite.
  Result<OperationStarts> chunk_reduced();
  // An operation has ended. GB-D611: a peer sent an invalid payload.
  Result<OperationStarts> ended(const CollectiveOperation& operation);
  // A GPU computes data for operations. It rings the engine; then one of them may start.
  bool waits() const { return !waiting_.empty(); }
  Result<OperationStarts> resume();
  bool done() const { return open_ == 0; }
  // The measurement of the round that ended, if there is one.
  const FidelitySample* fidelity() const { return measured_ ? &sample_ : nullptr; }

 private:
  CompressedTensor(const StartJob& job, const AddTensor& add, std::vector<float*> rank_buffers,
                   Transport& transport);
  Status open(uint32_t tensor);
  void open_operation(uint32_t tensor, const Stage& stage, std::span<std::byte> memory);
  uint64_t staging_bytes() const;
  PartitionPlan partition_plan(uint32_t index) const;
  std::span<float> first_rank_buffer(size_t partition) const;
  OperationStarts start(size_t partition);
  OperationStarts start(size_t partition, size_t stage,
                        std::span<const uint64_t> block_bytes) const;
  Status refuse_not_finite(size_t partition) const;
  Status take_turn_with_residual_state();
  void measure();
  void count(size_t partition, std::span<const uint64_t> block_bytes) const;

  const StartJob& job_;
  const AddTensor add_;
  const std::vector<float*> rank_buffers_;
  const bool refuses_not_finite_;
  StagingMemory staging_;
  std::vector<std::unique_ptr<CompressedPartition>> partitions_;
  std::unique_ptr<FidelityGauge> gauge_;  // null: not requested
  std::vector<std::unique_ptr<CollectiveOperation>> operations_;
  size_t stages_ = 1;  // per partition

  RoundRequest request_;
  uint64_t round_ = 0;  // rounds that were exchanged
  uint64_t chunks_reduced_ = 0;
  struct Waiting {
    size_t partition;
    size_t stage;  // its next stage
  };
  std::vector<Waiting> waiting_;
  size_t open_ = 0;  // partitions, and the gauge, whose round is not over
  size_t measured_partition_ = 0;
  bool measured_ = false;
  FidelitySample sample_;
};

}  // namespace gradbus
