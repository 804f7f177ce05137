// A local reduction is the meeting point of one tensor's local ranks: who has posted, which chunks
// are claimed, which round is finished. Clients and the agent run the same code on the same shared
// words (proto/shm_layout.h describes the layout and the steps of a round). Waiting threads do the
// reduction: blocked client threads and the agent both call reduce_chunks().
//
// Shape and addresses are private to each process. So nothing that another process writes into the
// words can move a read or a write. At worst a round of that job is wrong or never ends.
//
// Any thread may call anything, except that only the rank's owner calls post() and consume().
#pragma once

#include <cstdint>
#include <span>

#include "common/clock.h"
#include "common/kernels/reduce.h"
#include "common/status.h"
#include "proto/chunk_plan.h"
#include "proto/numbers.h"
#include "proto/shm_layout.h"
#include "shared_memory/tensor_spec.h"

namespace gradbus {

struct LocalReductionShape {
  CollectiveKind kind = CollectiveKind::kAllReduce;
  DType dtype = DType::kF32;
  uint64_t count = 0;
  uint64_t chunk_elements = 1;
  uint32_t chunks = 0;
  uint32_t local_size = 1;
  // The reduction of reduce_chunks(): between nodes only the first half of the operation.
  Reduction reduction{};
  uint32_t root = 0;          // on one node also the local rank of the root
  uint32_t shards = 1;        // reduce-scatter: one per rank of the job
  uint64_t row_elements = 1;  // reduce-scatter: elements that are never divided between shards
  bool remote =
      false;  // the agent ends rounds; reduce_chunks() sums into the first rank buffer only
  // Rank buffers are on GPUs. The agent makes the GPUs sum them, and reduce_chunks() does nothing.
  bool on_device = false;
  uint64_t data_stride = 0;  // bytes between rank buffers

  ChunkPlan chunk_plan() const { return {count, row_elements, shards, chunk_elements}; }
};

// The location of a job's ranks, as far as a local reduction needs it.
struct LocalReductionPlace {
  uint32_t world_size = 1;
  uint32_t local_size = 1;
  bool remote = false;     // the tensor leaves the node
  bool on_device = false;  // as in LocalReductionShape
};

// Sets everything except data_stride. `spec` has been checked.
LocalReductionShape make_local_reduction_shape(const TensorSpec& spec, uint64_t chunk_elements,
                                               const LocalReductionPlace& place);
// The final operation on the sum of all nodes: average and postscale.
Reduction last_reduction(const TensorSpec& spec, uint32_t world_size);

class LocalReduction {
 public:
  LocalReduction() = default;
  LocalReduction(std::byte* words, std::byte* data, const LocalReductionShape& shape);

  const LocalReductionShape& shape() const { return shape_; }
  // The rank buffer of `local_rank` (kinds that reduce), or block `index` (kinds that move blocks).
  std::byte* rank_buffer(uint32_t index) const { return data_ + index * shape_.data_stride; }

  // Posts and wakes waiting threads. For kinds that reduce, only the last rank's post wakes them.
  void post(uint32_t local_rank, uint64_t round, uint64_t bytes = 0);
  // Posts without waking threads. Returns true when this rank was the last.
  bool post_quietly(uint32_t local_rank, uint64_t round, uint64_t bytes);
  void consume(uint32_t local_rank, uint64_t round);
  bool posted(uint32_t local_rank, uint64_t round) const;
  bool all_posted(uint64_t round) const;
  bool all_consumed(uint64_t round) const;

  // Claims and reduces up to `chunks_max` chunks of `round`, which all ranks have posted. Returns
  // how many it did. On one node, the call that does the last chunk ends the round.
  uint32_t reduce_chunks(uint64_t round, uint8_t reducer, uint32_t chunks_max);
  bool chunk_reduced(uint32_t chunk, uint64_t round) const;
  bool may_reduce(uint64_t round) const;

  bool finished(uint64_t round) const;
  void finish(uint64_t round);
  // A local reduction that failed never finishes again.
  void fail(Code code);
  Code failure() const { return static_cast<Code>(words_->failed.load(std::memory_order_acquire)); }

  // For sleeping until something changes: take the ticket, check the condition, announce() and
  // check it again, then sleep. Always retract(). wake() needs no system call while no thread has
  // announced itself.
  uint32_t ticket() const { return words_->event.load(std::memory_order_acquire); }
  void announce() { words_->waiters.fetch_add(1, std::memory_order_seq_cst); }
  void retract() { words_->waiters.fetch_sub(1, std::memory_order_relaxed); }
  void sleep(uint32_t ticket, Nanos timeout);
  void wake();

 private:
  bool claim(uint64_t round, uint32_t& chunk);
  void reduce_chunk(uint32_t chunk);
  std::span<std::byte* const> result_rank_buffers(std::span<std::byte* const> rank_buffers,
                                                  uint32_t shard) const;
  ReadyLine& line(uint32_t local_rank) const { return lines_[local_rank]; }

  LocalReductionHeader* words_ = nullptr;
  ReadyLine* lines_ = nullptr;
  ChunkWord* chunk_words_ = nullptr;
  std::byte* data_ = nullptr;
  LocalReductionShape shape_;
};

}  // namespace gradbus
