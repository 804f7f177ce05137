// One registered tensor inside the engine: its local reduction, the posts of its ranks, and its
// collective operations. A dense tensor has one, for its elements; a compressed one has several.
//
// Engine thread only. Addresses and shapes come from the conductor's AddTensor, never from shared
// memory.
#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/clock.h"
#include "data_plane/collective_operation.h"
#include "data_plane/send_queue.h"
#include "proto/tensor_names.h"
#include "shared_memory/local_reduction.h"
#include "worker_agent/job/worker_commands.h"
#include "worker_agent/rounds/local_sum.h"
#include "worker_agent/rounds/node_round.h"
#include "worker_agent/rounds/tensor_round.h"

namespace gradbus {

class EngineTensor {
 public:
  EngineTensor(const StartJob& job, AddTensor add, RegionId region, const Clock& clock);
  // Opens the operations between nodes. S201 when address space for payloads runs out.
  Status open_operations(const StartJob& job, Transport& transport);

  std::string name() const { return std::string(shown_name(add_.plan.spec.name)); }  // in messages
  uint32_t id() const { return add_.plan.id; }
  bool remote() const { return add_.shape.remote; }
  bool reduces() const { return gradbus::reduces(add_.shape.kind); }
  bool empty() const { return add_.shape.count == 0; }
  // Called before its first round, when nothing of `other` is exchanged any more.
  void take_place_of(EngineTensor& other);
  LocalReduction& local_reduction() { return local_reduction_; }
  // What a round exchanges, and who sums this node's ranks for it.
  TensorRound& round() { return *round_; }
  const TensorRound& round() const { return *round_; }
  LocalSum& sum() { return *sum_; }
  // Whether agents or shards exchange something for it.
  bool leaves_node() const { return !round_->operations().empty(); }
  NcclChild::Call nccl_call() const;  // in place

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
    begun_ = round, running_ = true;
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
  // The request of the ranks for the round that is ready.
  const RoundRequest& request() const { return request_; }
  std::span<const uint64_t> block_bytes() const { return block_bytes_; }
  RoundTrace& trace() { return trace_; }
  const SendOrder& order() const { return order_; }

  // ---- local reduction of the round that has begun
  void start_reducing() { reported_ = 0; }
  // The next chunk of the sum, once it is ready. Reduces at most one chunk.
  Result<std::optional<uint32_t>> reduce_some();
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
  bool assists() const { return assists_left_ > 0 && local_reduction_.may_reduce(assisted_); }
  void stop_assisting() { assists_left_ = 0; }

 private:
  Result<std::unique_ptr<TensorRound>> make_exchange(const StartJob& job, Transport& transport);

  AddTensor add_;
  const SendOrder order_;
  RegionId region_;
  LocalReduction local_reduction_;
  std::vector<uint64_t> posted_;       // by local rank
  std::vector<uint32_t> local_ranks_;  // rank by local rank
  std::vector<uint64_t> block_bytes_;  // by rank
  std::unique_ptr<LocalSum> sum_;
  std::unique_ptr<TensorRound> round_ = std::make_unique<NodeRound>();
  RoundRequest request_;
  uint64_t begun_ = 0;
  bool running_ = false;  // the current round is not over
  uint32_t reported_ = 0;
  uint64_t assisted_ = 0;  // the latest round for which help was requested
  uint32_t assists_left_ = 0;
  Nanos first_post_at_ = 0;  // of the next round; 0: no rank has posted it
  Nanos begun_at_ = 0;
  RoundTrace trace_;
};

}  // namespace gradbus
