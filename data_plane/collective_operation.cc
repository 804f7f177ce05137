#include "data_plane/collective_operation.h"

#include <algorithm>
#include <cstring>

#include "common/check.h"

namespace gradbus {

CollectiveOperation::CollectiveOperation(OperationId id, const CollectivePlan& plan,
                                         const OperationBuffers& memory,
                                         std::vector<uint32_t> rank_buffers, const Reduction& last)
    : id_(id),
      plan_(plan),
      memory_(memory),
      ranks_(std::move(rank_buffers)),
      last_(last),
      collective_(make_collective(plan)),
      stash_(
          std::make_unique_for_overwrite<std::byte[]>(collective_->needs().stash_slots * bytes())),
      rank_buffer_pointers_(ranks_.size()),
      block_bytes_(reduces() ? 0 : plan.blocks()) {}

uint64_t CollectiveOperation::bytes() const { return plan_.count * dtype_bytes(plan_.dtype); }

uint64_t CollectiveOperation::chunk_offset(uint32_t chunk) const {
  const uint64_t first =
      reduces() ? plan_.chunk_plan().range(chunk).first : chunk * plan_.chunk_elements;
  return first * dtype_bytes(plan_.dtype);
}

std::span<std::byte* const> CollectiveOperation::rank_buffers(uint32_t chunk) {
  for (uint32_t index = 0; index < rank_buffer_pointers_.size(); ++index)
    rank_buffer_pointers_[index] = rank_buffer(index) + chunk_offset(chunk);
  return rank_buffer_pointers_;
}

// The rank buffers on this node that get the result.
std::span<std::byte* const> CollectiveOperation::result_rank_buffers(uint32_t chunk) {
  const std::span<std::byte* const> all = rank_buffers(chunk);
  if (plan_.kind == CollectiveKind::kAllReduce) return all;
  const uint32_t rank =
      plan_.kind == CollectiveKind::kReduce ? plan_.root : plan_.chunk_plan().range(chunk).shard;
  const auto local = std::find(ranks_.begin(), ranks_.end(), rank);
  GRADBUS_CHECK(local != ranks_.end());
  return all.subspan(static_cast<size_t>(local - ranks_.begin()), 1);
}

std::span<const std::byte> CollectiveOperation::block(uint32_t source) const {
  return {rank_buffer(source), block_bytes_[source]};
}

FrameHeader CollectiveOperation::frame(uint64_t job, uint32_t epoch, const Action& send) const {
  FrameHeader header;
  header.kind = static_cast<uint8_t>(send.frame);
  header.codec = static_cast<uint8_t>(send.dense ? CodecId::kDense : plan_.codec);
  header.dtype = static_cast<uint8_t>(plan_.dtype);
  header.op = static_cast<uint8_t>(plan_.op);
  header.collective = static_cast<uint8_t>(plan_.kind);
  header.operation = id_.index;
  header.source = send.source;
  header.job = job;
  header.epoch = epoch;
  header.tensor = id_.tensor;
  header.step = send.round;
  header.chunk = send.chunk;
  header.length = static_cast<uint32_t>(send.bytes);
  header.total = send.total;
  return header;
}

Slice CollectiveOperation::slice(const Action& send) const {
  const uint64_t block = reduces() ? 0 : send.source;
  return {memory_.region, memory_.offset + block * memory_.stride + chunk_offset(send.chunk),
          send.bytes};
}

void CollectiveOperation::stash(uint32_t slot, std::span<const std::byte> payload) {
  if (!payload.empty()) std::memcpy(&stash_[slot * bytes()], payload.data(), payload.size());
}

std::span<const std::byte> CollectiveOperation::stashed(const Action& action) const {
  return {&stash_[action.slot * bytes()], action.bytes};
}

void CollectiveOperation::accumulate(const Action& action, std::span<const std::byte> payload) {
  const std::span<std::byte* const> target = rank_buffers(action.chunk).first(1);
  const std::byte* const sources[] = {action.payload_first ? payload.data() : target[0],
                                      action.payload_first ? target[0] : payload.data()};
  reduce(plan_.dtype, Reduction{.op = last_.op}, sources, target,
         plan_.chunk_plan().range(action.chunk).elements);
}

void CollectiveOperation::finalize(uint32_t chunk) {
  const std::byte* const source[] = {rank_buffers(chunk)[0]};
  const std::span<std::byte* const> targets = result_rank_buffers(chunk);
  if (last_.copies() && targets.size() == 1 && targets[0] == source[0]) return;
  reduce(plan_.dtype, last_, source, targets, plan_.chunk_plan().range(chunk).elements);
}

void CollectiveOperation::deliver(const Action& action, std::span<const std::byte> payload) {
  came_dense_ = action.dense;
  if (!reduces()) block_bytes_[action.source] = action.total;
  if (payload.empty()) return;
  if (reduces()) {
    for (std::byte* target : rank_buffers(action.chunk))
      std::memcpy(target, payload.data(), payload.size());
    return;
  }
  std::memcpy(rank_buffer(action.source) + chunk_offset(action.chunk), payload.data(),
              payload.size());
}

}  // namespace gradbus
