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

#include <memory>
#include <span>
#include <vector>

#include "data_plane/staging_memory.h"
#include "proto/frame.h"
#include "worker_agent/compressed/partition.h"
#include "worker_agent/job/fidelity.h"
#include "worker_agent/job/worker_commands.h"
#include "worker_agent/rounds/tensor_round.h"

namespace gradbus {

class CompressedTensor final : public TensorRound {
 public:
  // `rank_buffers`: the tensor's first element by local rank; empty if they are on GPUs
  // (GpuMemory). `trace`: of the tensor's current round. S201 when address space runs
  // out.
  static Result<std::unique_ptr<CompressedTensor>> create(const StartJob& job, const AddTensor& add,
                                                          std::vector<float*> rank_buffers,
                                                          RoundTrace& trace, Transport& transport);
  ~CompressedTensor() override;
  CompressedTensor(const CompressedTensor&) = delete;
  CompressedTensor& operator=(const CompressedTensor&) = delete;

  Operations operations() const override { return operations_; }

  // GB-D624: a GPU refuses work.
  Status begin(const RoundInput& input, OperationQueue& next) override;
  // O901: the check (nan=stop) found a number that is not finite.
  Status chunk_summed(uint32_t chunk, OperationQueue& next) override;
  // GB-D611: a peer sent an invalid payload.
  Status ended(const CollectiveOperation& operation, OperationQueue& next) override;
  bool waits() const override { return !waiting_.empty(); }
  Status resume(OperationQueue& next) override;
  bool done() const override { return open_ == 0; }
  void finished() override;

  bool has_residual_state() const override { return true; }
  // Copies the state of the partitions element by element.
  void take_residual_state(TensorRound& other) override;
  CompressedTensor* compressed() override { return this; }

 private:
  CompressedTensor(const StartJob& job, const AddTensor& add, std::vector<float*> rank_buffers,
                   RoundTrace& trace, Transport& transport);
  Status open(uint32_t tensor);
  void open_operation(uint32_t tensor, const Stage& stage, std::span<std::byte> memory);
  uint64_t staging_bytes() const;
  PartitionPlan partition_plan(uint32_t index) const;
  std::span<float> first_rank_buffer(size_t partition) const;
  RoundTrace* traced() const { return job_.trace->on() ? &trace_ : nullptr; }
  Status chunk_summed(OperationQueue& next);
  void start(size_t partition, OperationQueue& next);
  void start(size_t partition, size_t stage, std::span<const uint64_t> block_bytes,
             OperationQueue& next) const;
  void begin_operation(CollectiveOperation& operation, uint64_t round,
                       std::span<const uint64_t> block_bytes, OperationQueue& next) const;
  Status advance(const CollectiveOperation& operation, OperationQueue& next);
  Status refuse_not_finite(size_t partition) const;
  Status take_turn_with_residual_state();
  void measure();
  void count(size_t partition, std::span<const uint64_t> block_bytes) const;

  const StartJob& job_;
  const AddTensor add_;
  const CompressionPlan& compression_;  // of the plan
  const std::vector<float*> rank_buffers_;
  RoundTrace& trace_;
  const bool refuses_not_finite_;
  StagingMemory staging_;
  std::vector<std::unique_ptr<CompressedPartition>> partitions_;
  std::unique_ptr<FidelityGauge> gauge_;  // null: not requested
  std::vector<std::unique_ptr<CollectiveOperation>> operations_;
  size_t stages_ = 1;  // per partition

  RoundRequest request_;
  uint64_t round_ = 0;  // rounds that were exchanged
  // What a codec's warm-up counts in addition, modulo 2^64: rounds of an earlier tensor.
  uint64_t rounds_before_ = 0;
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
