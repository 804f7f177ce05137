// One registered tensor inside the engine: its cell, its collective, and the bytes that actions
// touch.
//
// Engine thread only. Addresses and shapes come from the conductor's AddTensor, never from shared
// memory.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client_lib/shm/cell.h"
#include "proto/frame.h"
#include "transport/transport.h"
#include "worker_agent/collectives/collective.h"
#include "worker_agent/engine_command.h"

namespace gradbus {

class EngineTensor {
 public:
  EngineTensor(const StartJob& job, AddTensor add, RegionId region);

  const std::string& name() const { return add_.name; }
  uint32_t id() const { return add_.tensor; }
  bool remote() const { return add_.shape.remote; }
  bool reduces() const { return gradbus::reduces(add_.shape.kind); }
  bool empty() const { return add_.shape.count == 0; }
  Cell& cell() { return cell_; }
  Collective& collective() { return *collective_; }

  // ---- what the local ranks have posted
  // O902/S210-like text when the post cannot be: not the next round, a block longer than allowed.
  Status post(uint32_t local_rank, uint64_t round, uint64_t block_bytes);
  // The round that all local ranks have posted and that has not begun yet; 0: none.
  uint64_t ready_round() const;
  void begun(uint64_t round) { begun_ = round; }
  uint64_t begun_round() const { return begun_; }
  std::span<const uint64_t> block_bytes() const { return block_bytes_; }

  // ---- local reduction of the round that has begun
  void start_reducing() { reported_ = 0; }
  // Reduces at most one chunk, then returns the next chunk that is reduced (by anybody), or -1.
  int64_t reduce_some();
  bool reducing() const { return reported_ < add_.shape.chunks; }

  // ---- the bytes behind actions
  FrameHeader frame(const StartJob& job, const Action& send) const;
  Slice slice(const Action& send) const;
  void stash(uint32_t slot, std::span<const std::byte> payload);
  std::span<const std::byte> stashed(const Action& action) const;
  void accumulate(const Action& action, std::span<const std::byte> payload);
  void finalize(uint32_t chunk);
  void deliver(const Action& action, std::span<const std::byte> payload);

 private:
  uint64_t bytes() const;  // of the tensor, or of one block
  uint64_t chunk_offset(uint32_t chunk) const;
  uint64_t chunk_elements(uint32_t chunk) const;
  std::span<std::byte* const> areas(uint32_t chunk);
  std::span<std::byte* const> result_areas(uint32_t chunk);

  AddTensor add_;
  RegionId region_;
  Cell cell_;
  std::unique_ptr<Collective> collective_;
  std::vector<uint64_t> posted_;        // by local rank
  std::vector<uint32_t> local_ranks_;   // rank by local rank
  std::vector<uint64_t> block_bytes_;   // by rank
  std::unique_ptr<std::byte[]> stash_;  // pages that no early frame has touched cost nothing
  std::vector<std::byte*> area_pointers_;
  uint64_t begun_ = 0;
  uint32_t reported_ = 0;
};

}  // namespace gradbus
