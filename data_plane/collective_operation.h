// One collective between the agents of a job, and the bytes of its actions: a tensor in the arena,
// or payloads of a compressed tensor (compressed_tensor.h).
//
// Engine thread only. Addresses and shapes come from the plan, never from shared memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "common/kernels/reduce.h"
#include "data_plane/collectives/collective.h"
#include "proto/frame.h"
#include "transport/transport.h"

namespace gradbus {

// The location of the rank buffers (kinds that reduce: one per local rank) or blocks.
struct OperationBuffers {
  RegionId region;
  uint64_t offset = 0;         // of the first rank buffer in the region
  std::byte* first = nullptr;  // the first rank buffer
  uint64_t stride = 0;         // bytes from one to the next
};

// The fields of a frame that select the operation.
struct OperationId {
  uint32_t tensor = 0;
  uint16_t index = 0;  // among the tensor's operations
  bool operator==(const OperationId&) const = default;
};

class CollectiveOperation {
 public:
  // `rank_buffers`: the ranks on this node whose rank buffers get the result, by local rank.
  // `last`: the final operation on the sum of all agents.
  CollectiveOperation(OperationId id, const CollectivePlan& plan, const OperationBuffers& memory,
                      std::vector<uint32_t> rank_buffers, const Reduction& last);

  OperationId id() const { return id_; }
  Collective& collective() { return *collective_; }
  const CollectivePlan& plan() const { return plan_; }
  // Kinds that move blocks: the bytes of block `source` received in this round.
  std::span<const std::byte> block(uint32_t source) const;
  // Whether the last data was elements instead of a payload.
  bool came_dense() const { return came_dense_; }

  // ---- the data of actions
  FrameHeader frame(uint64_t job, uint32_t epoch, const Action& send) const;
  Slice slice(const Action& send) const;
  void stash(uint32_t slot, std::span<const std::byte> payload);
  std::span<const std::byte> stashed(const Action& action) const;
  void accumulate(const Action& action, std::span<const std::byte> payload);
  void finalize(uint32_t chunk);
  void deliver(const Action& action, std::span<const std::byte> payload);

 private:
  bool reduces() const { return gradbus::reduces(plan_.kind); }
  uint64_t bytes() const;  // of the tensor, or of one block
  uint64_t chunk_offset(uint32_t chunk) const;
  std::span<std::byte* const> rank_buffers(uint32_t chunk);
  std::span<std::byte* const> result_rank_buffers(uint32_t chunk);
  std::byte* rank_buffer(uint32_t index) const { return memory_.first + index * memory_.stride; }

  const OperationId id_;
  const CollectivePlan plan_;
  const OperationBuffers memory_;
  const std::vector<uint32_t> ranks_;
  const Reduction last_;
  std::unique_ptr<Collective> collective_;
  std::unique_ptr<std::byte[]> stash_;  // pages without an early frame cost nothing
  std::vector<std::byte*> rank_buffer_pointers_;
  std::vector<uint64_t> block_bytes_;  // kinds that move blocks: lengths of the received ones
  bool came_dense_ = false;
};

}  // namespace gradbus
