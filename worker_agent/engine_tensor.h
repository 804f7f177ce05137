// One registered tensor inside the engine: its cell, what its ranks have posted, and its exchanges:
// one of the elements themselves, or those of a compressed tensor.
//
// Engine thread only. Addresses and shapes come from the conductor's AddTensor, never from shared
// memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "client_lib/shm/cell.h"
#include "worker_agent/compressed/compressed_tensor.h"
#include "worker_agent/engine_command.h"
#include "worker_agent/exchange.h"

namespace gradbus {

class EngineTensor {
 public:
  EngineTensor(const StartJob& job, AddTensor add, RegionId region);
  // Between nodes: what carries it. S201 when there is no address space for payloads.
  Status open_exchanges(const StartJob& job, Transport& transport);

  const std::string& name() const { return add_.name; }
  uint32_t id() const { return add_.tensor; }
  bool remote() const { return add_.shape.remote; }
  bool reduces() const { return gradbus::reduces(add_.shape.kind); }
  bool empty() const { return add_.shape.count == 0; }
  bool on_shards() const { return add_.algorithm == Algorithm::kShards; }
  uint32_t replicas() const { return add_.replicas; }
  // Before its first round: of a tensor with which nothing is exchanged any more.
  void take_place_of(EngineTensor& other);
  // What it has is on this peer, a shard, among others.
  bool lives_on(uint32_t peer) const;
  Cell& cell() { return cell_; }
  std::span<const std::unique_ptr<Exchange>> exchanges() const {
    return compressed_ == nullptr ? exchanges_ : compressed_->exchanges();
  }
  DeviceTensor* device() { return add_.device.get(); }  // null: the ranks' areas are in host memory
  // There is something to do between its agents, or with shards.
  bool leaves_node() const {
    return remote() && (add_.device == nullptr || add_.device->leaves_node());
  }
  NcclChild::Call nccl_call() const;                            // in place
  CompressedTensor* compressed() { return compressed_.get(); }  // null: dense

  // ---- what the local ranks have posted
  // S210: the record says what no client would.
  Status check_request(const Submission& record) const;
  // Of a record that passed. S210 when the post cannot be: not the next round, a block longer than
  // allowed. O902: ranks of this node ask for different things.
  Status post(uint32_t local_rank, const Submission& record);
  // The round that all local ranks have posted and that has not begun yet; 0: none.
  uint64_t ready_round() const;
  void begun(uint64_t round) { begun_ = round, running_ = true, staleness_ = 0; }
  void finished() { running_ = false; }
  bool running() const { return running_; }
  // No rank has posted a round that is not over. (Rounds on one node do not come here.)
  bool rests() const {
    return !running_ &&
           std::ranges::all_of(posted_, [this](uint64_t round) { return round <= begun_; });
  }
  uint64_t begun_round() const { return begun_; }
  // Of the round: the largest that a shard has told.
  void note_staleness(uint32_t steps) { staleness_ = std::max(staleness_, steps); }
  uint32_t staleness() const { return staleness_; }
  bool holds_parameters() const { return add_.holds_parameters; }  // shards do
  // What the ranks ask of the round that is ready.
  const RoundRequest& request() const { return request_; }
  std::span<const uint64_t> block_bytes() const { return block_bytes_; }

  // ---- local reduction of the round that has begun
  void start_reducing() { reported_ = 0; }
  // Reduces at most one chunk, then returns the next chunk that is reduced (by anybody), or -1.
  int64_t reduce_some();
  bool reducing() const { return reported_ < add_.shape.chunks; }
  uint64_t chunk_bytes() const { return add_.shape.chunk_elements * dtype_bytes(add_.shape.dtype); }

  // ---- help with a round of one node, which its ranks sum themselves
  // True when the tensor was not being assisted before.
  bool ask_for_assistance(uint64_t round);
  // Sums at most one chunk; how many.
  uint32_t assist_some();
  // False when all is claimed, or when as many chunks were tried as a round has: a client may write
  // into the cell that there is always more to do.
  bool assists() const { return assists_left_ > 0 && cell_.may_help(assisted_); }
  void stop_assisting() { assists_left_ = 0; }

 private:
  uint64_t bytes() const;  // of the tensor, or of one block
  std::vector<uint32_t> areas_in_host_memory() const;

  AddTensor add_;
  RegionId region_;
  Cell cell_;
  std::vector<uint64_t> posted_;                      // by local rank
  std::vector<uint32_t> local_ranks_;                 // rank by local rank
  std::vector<uint64_t> block_bytes_;                 // by rank
  std::vector<std::unique_ptr<Exchange>> exchanges_;  // one, of a dense tensor between nodes
  std::unique_ptr<CompressedTensor> compressed_;
  RoundRequest request_;
  const uint32_t agents_;  // of the job
  const uint32_t shards_;  // of its placement
  bool replaced_ = false;
  uint64_t begun_ = 0;
  bool running_ = false;  // the round that has begun is not over
  uint32_t reported_ = 0;
  uint64_t assisted_ = 0;  // the newest round that help was asked for
  uint32_t assists_left_ = 0;
  uint32_t staleness_ = 0;
};

}  // namespace gradbus
