// One registered tensor inside the engine: its local reduction, the posts of its ranks, and its
// collective operations. A dense tensor has one, for its elements; a compressed one has several.
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

#include "common/clock.h"
#include "data_plane/collective_operation.h"
#include "shared_memory/local_reduction.h"
#include "worker_agent/compressed/compressed_tensor.h"
#include "worker_agent/job/worker_commands.h"

namespace gradbus {

class EngineTensor {
 public:
  EngineTensor(const StartJob& job, AddTensor add, RegionId region);
  // Opens the operations between nodes. S201 when address space for payloads runs out.
  Status open_operations(const StartJob& job, Transport& transport);

  const std::string& name() const { return add_.name; }
  uint32_t id() const { return add_.tensor; }
  bool remote() const { return add_.shape.remote; }
  bool reduces() const { return gradbus::reduces(add_.shape.kind); }
  bool empty() const { return add_.shape.count == 0; }
  bool on_shards() const { return add_.algorithm == Algorithm::kShards; }
  uint32_t replicas() const { return add_.replicas; }
  // Called before its first round, when nothing of `other` is exchanged any more.
  void take_place_of(EngineTensor& other);
  // Whether a part of its data is on this peer, a shard.
  bool lives_on(uint32_t peer) const;
  LocalReduction& local_reduction() { return local_reduction_; }
  std::span<const std::unique_ptr<CollectiveOperation>> exchanges() const {
    return compressed_ == nullptr ? operations_ : compressed_->exchanges();
  }
  // Null: the ranks' buffers are in host memory.
  DeviceTensor* device() { return add_.device.get(); }
  // Whether agents or shards exchange something for it.
  bool leaves_node() const {
    return remote() && (add_.device == nullptr || add_.device->leaves_node());
  }
  NcclChild::Call nccl_call() const;                            // in place
  CompressedTensor* compressed() { return compressed_.get(); }  // null: dense

  // ---- posts of the local ranks
  //
  // Returns S210 for a record that no valid client sends.
  Status check_request(const Submission& record) const;
  // Stores a checked record. Returns S210 for an invalid post: not the next round, or a block that
  // is too long. O902: ranks of this node request different operations.
  Status post(uint32_t local_rank, const Submission& record);
  // The round that all local ranks have posted and that has not begun; 0: none.
  uint64_t ready_round() const;
  void begun(uint64_t round, Nanos now) {
    begun_ = round, running_ = true, staleness_ = 0;
    begun_at_ = now, first_post_at_ = 0;
  }
  // Of a post that came now: how much later it is than the round's first one.
  uint64_t lateness(Nanos now) {
    if (first_post_at_ == 0) first_post_at_ = now;
    return static_cast<uint64_t>(now - first_post_at_);
  }
  Nanos begun_at() const { return begun_at_; }
  CollectiveKind kind() const { return add_.shape.kind; }
  uint64_t bytes() const;  // of the tensor, or of one block
  void finished() { running_ = false; }
  bool running() const { return running_; }
  // No rank has posted a round that is not over. (Rounds on one node are not posted here.)
  bool rests() const {
    return !running_ &&
           std::ranges::all_of(posted_, [this](uint64_t round) { return round <= begun_; });
  }
  uint64_t begun_round() const { return begun_; }
  // The staleness of the round: the maximum that a shard has reported.
  void note_staleness(uint32_t steps) { staleness_ = std::max(staleness_, steps); }
  uint32_t staleness() const { return staleness_; }
  bool holds_parameters() const { return add_.holds_parameters; }  // on shards
  // The request of the ranks for the round that is ready.
  const RoundRequest& request() const { return request_; }
  std::span<const uint64_t> block_bytes() const { return block_bytes_; }
  RoundTrace& trace() { return trace_; }
  const SendOrder& order() const { return add_.order; }

  // ---- local reduction of the round that has begun
  void start_reducing() { reported_ = 0; }
  // Reduces at most one chunk. Returns the next chunk that any thread has reduced, or -1.
  int64_t reduce_some();
  bool reducing() const { return reported_ < add_.shape.chunks; }
  uint64_t chunk_bytes() const { return add_.shape.chunk_elements * dtype_bytes(add_.shape.dtype); }

  // ---- help with a round of one node, which its ranks sum themselves
  //
  // Returns true if the tensor was not being assisted before.
  bool ask_for_assistance(uint64_t round);
  // Sums at most one chunk; returns how many.
  uint32_t assist_some();
  // False when all chunks are claimed, or when as many were tried as a round has. The limit is
  // needed because a client may write words that always claim more work.
  bool assists() const { return assists_left_ > 0 && local_reduction_.may_help(assisted_); }
  void stop_assisting() { assists_left_ = 0; }

 private:
  std::vector<uint32_t> rank_buffers_in_host_memory() const;

  AddTensor add_;
  RegionId region_;
  LocalReduction local_reduction_;
  std::vector<uint64_t> posted_;       // by local rank
  std::vector<uint32_t> local_ranks_;  // rank by local rank
  std::vector<uint64_t> block_bytes_;  // by rank
  // One, for a dense tensor between nodes.
  std::vector<std::unique_ptr<CollectiveOperation>> operations_;
  std::unique_ptr<CompressedTensor> compressed_;
  RoundRequest request_;
  const uint32_t agents_;  // of the job
  const uint32_t shards_;  // of its placement
  bool replaced_ = false;
  uint64_t begun_ = 0;
  bool running_ = false;  // the current round is not over
  uint32_t reported_ = 0;
  uint64_t assisted_ = 0;  // the latest round for which help was requested
  uint32_t assists_left_ = 0;
  uint32_t staleness_ = 0;
  Nanos first_post_at_ = 0;  // of the next round; 0: no rank has posted it
  Nanos begun_at_ = 0;
  RoundTrace trace_;
};

}  // namespace gradbus
