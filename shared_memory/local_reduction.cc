#include "shared_memory/local_reduction.h"

#include <algorithm>
#include <array>

#include "shared_memory/futex.h"
#include "shared_memory/half_averages.h"

namespace gradbus {
namespace {

constexpr uint64_t cursor_at(uint64_t round, uint32_t chunk) { return (round << 32) | chunk; }

// An average is a sum that is divided once, at the end.
ReduceOp combining(ReduceOp op) { return op == ReduceOp::kAverage ? ReduceOp::kSum : op; }

}  // namespace

Reduction last_reduction(const TensorSpec& spec, uint32_t world_size) {
  return {.op = combining(spec.op),
          .divisor = spec.op == ReduceOp::kAverage ? world_size : 1,
          .prescale = 1,
          .postscale = spec.postscale};
}

LocalReductionShape make_local_reduction_shape(const TensorSpec& spec, uint64_t chunk_elements,
                                               const LocalReductionPlace& place) {
  LocalReductionShape shape{spec.kind, spec.dtype, spec.count, chunk_elements};
  shape.local_size = place.local_size;
  shape.remote = place.remote || place.on_device;
  shape.on_device = place.on_device;
  shape.root = spec.root;
  shape.row_elements = spec.row_elements;
  if (spec.kind == CollectiveKind::kReduceScatter) shape.shards = place.world_size;
  shape.chunks = shape.chunk_plan().chunks();
  shape.reduction = place.remote ? node_reduction(spec, place.world_size)
                                 : last_reduction(spec, place.world_size);
  shape.reduction.prescale = spec.prescale;
  return shape;
}

LocalReduction::LocalReduction(std::byte* words, std::byte* data, const LocalReductionShape& shape)
    : words_(reinterpret_cast<LocalReductionHeader*>(words)),
      lines_(reinterpret_cast<ReadyLine*>(words + sizeof(LocalReductionHeader))),
      chunk_words_(reinterpret_cast<ChunkWord*>(words + sizeof(LocalReductionHeader) +
                                                shape.local_size * sizeof(ReadyLine))),
      data_(data),
      shape_(shape) {}

bool LocalReduction::post_quietly(uint32_t local_rank, uint64_t round, uint64_t bytes) {
  line(local_rank).bytes.store(bytes, std::memory_order_relaxed);
  line(local_rank).posted.store(round, std::memory_order_seq_cst);
  return all_posted(round);
}

void LocalReduction::post(uint32_t local_rank, uint64_t round, uint64_t bytes) {
  if (post_quietly(local_rank, round, bytes) || !reduces(shape_.kind)) wake();
}

void LocalReduction::consume(uint32_t local_rank, uint64_t round) {
  line(local_rank).consumed.store(round, std::memory_order_seq_cst);
  wake();
}

bool LocalReduction::posted(uint32_t local_rank, uint64_t round) const {
  return line(local_rank).posted.load(std::memory_order_seq_cst) >= round;
}

bool LocalReduction::all_posted(uint64_t round) const {
  for (uint32_t rank = 0; rank < shape_.local_size; ++rank)
    if (!posted(rank, round)) return false;
  return true;
}

bool LocalReduction::all_consumed(uint64_t round) const {
  for (uint32_t rank = 0; rank < shape_.local_size; ++rank)
    if (line(rank).consumed.load(std::memory_order_seq_cst) < round) return false;
  return true;
}

// The upper half of the cursor is the round, so the first claim of a round resets the index too.
bool LocalReduction::claim(uint64_t round, uint32_t& chunk) {
  const uint64_t first = cursor_at(round, 0);
  uint64_t seen = words_->cursor.load(std::memory_order_acquire);
  for (;;) {
    const uint64_t next = std::max(seen, first);
    if (next < first || next - first >= shape_.chunks) return false;
    if (words_->cursor.compare_exchange_weak(seen, next + 1, std::memory_order_acq_rel)) {
      chunk = static_cast<uint32_t>(next - first);
      return true;
    }
  }
}

bool LocalReduction::may_reduce(uint64_t round) const {
  if (shape_.on_device) return false;
  const uint64_t first = cursor_at(round, 0);
  const uint64_t next = std::max(words_->cursor.load(std::memory_order_acquire), first);
  return next - first < shape_.chunks && all_posted(round);
}

uint32_t LocalReduction::reduce_chunks(uint64_t round, uint8_t reducer, uint32_t chunks_max) {
  uint32_t reduced = 0;
  for (uint32_t chunk = 0; reduced < chunks_max && claim(round, chunk); ++reduced) {
    chunk_words_[chunk].store(chunk_word(round, ChunkState::kClaimed, reducer),
                              std::memory_order_relaxed);
    reduce_chunk(chunk);
    chunk_words_[chunk].store(chunk_word(round, ChunkState::kReduced, reducer),
                              std::memory_order_release);
    const uint64_t done = words_->done.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (!shape_.remote && done == round * shape_.chunks) finish(round);
  }
  return reduced;
}

bool LocalReduction::chunk_reduced(uint32_t chunk, uint64_t round) const {
  const uint64_t word = chunk_words_[chunk].load(std::memory_order_acquire);
  return (word | 0xff) == chunk_word(round, ChunkState::kReduced, 0xff);
}

// The rank buffers that get the result on one node. Between nodes, the first rank buffer has the
// node's sum until the agents have exchanged it.
std::span<std::byte* const> LocalReduction::result_rank_buffers(
    std::span<std::byte* const> rank_buffers, uint32_t shard) const {
  if (shape_.remote) return rank_buffers.first(1);
  switch (shape_.kind) {
    case CollectiveKind::kReduce: return rank_buffers.subspan(shape_.root, 1);
    case CollectiveKind::kReduceScatter: return rank_buffers.subspan(shard, 1);
    default: return rank_buffers;
  }
}

// Makes one pass over the chunk in every rank buffer.
void LocalReduction::reduce_chunk(uint32_t chunk) {
  const ChunkRange range = shape_.chunk_plan().range(chunk);
  std::array<std::byte*, kLocalRanksMax> rank_buffers;
  for (uint32_t rank = 0; rank < shape_.local_size; ++rank)
    rank_buffers[rank] = rank_buffer(rank) + range.first * dtype_bytes(shape_.dtype);
  const std::span<std::byte* const> all(rank_buffers.data(), shape_.local_size);
  const std::span<const std::byte* const> sources(
      const_cast<const std::byte**>(rank_buffers.data()), shape_.local_size);
  reduce(shape_.dtype, shape_.reduction, sources, result_rank_buffers(all, range.shard),
         range.elements);
}

bool LocalReduction::finished(uint64_t round) const {
  return words_->finished.load(std::memory_order_seq_cst) == static_cast<uint32_t>(round);
}

void LocalReduction::finish(uint64_t round) {
  words_->finished.store(static_cast<uint32_t>(round), std::memory_order_seq_cst);
  wake();
}

void LocalReduction::fail(Code code) {
  words_->failed.store(static_cast<uint32_t>(code), std::memory_order_release);
  words_->event.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(words_->event);
}

void LocalReduction::sleep(uint32_t ticket, Nanos timeout) {
  futex_wait(words_->event, ticket, timeout);
}

// Both sides are sequentially consistent. Our change comes before this read of `waiters`. A sleeper
// announces itself before its last check of the condition. So one of the two sees the other.
void LocalReduction::wake() {
  if (words_->waiters.load(std::memory_order_seq_cst) == 0) return;
  words_->event.fetch_add(1, std::memory_order_seq_cst);
  futex_wake_all(words_->event);
}

}  // namespace gradbus
