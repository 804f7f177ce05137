// One job on a shard: the tensors that it aggregates, and its links to the job's agents. It has no
// ranks and no shared memory.
//
// COPIES. With mode option replicas=2 the next shard is this one's backup: it has a shadow of each
// tensor (shard_tensor.h), and this one has those of the shard before it. A push is first sent on
// to the backup, from the buffer it lies in, and taken here when the backup has said that it has
// taken it. So nothing is answered that the backup has not got, and it is always as far as this one
// or a step ahead. Frames overtake each other, but only the order within a chunk matters: one push
// of a chunk is on its way at a time, the others wait in their receive buffers. Of a push of
// several frames those that came before its last one go ahead of it, and lie in the memory of both.
//
// A LOST SHARD. The backup's shadows answer from then on (promote), but not before the link from
// the lost shard has ended: what is still in it comes first. Pushes wait until then. The shard
// whose backup is lost takes what waits, and goes on alone. The coordinator sees to it that not
// both shards of a chunk are lost.
// Snapshots of what the lost shard held are written by the backup then, as the lost one's.
//
// MOVES. When shards come or go a tensor is registered anew on those there are, and begins with
// what its predecessor holds, which its shards send (shard_job_moves.cc).
//
// Engine thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "proto/placement.h"
#include "transport/bounded_queue.h"
#include "worker_agent/ended_links.h"
#include "worker_agent/engine_command.h"
#include "worker_agent/hosted_job.h"
#include "worker_agent/job_links.h"
#include "worker_agent/shard/shard_snapshots.h"
#include "worker_agent/shard/shard_tensor.h"

namespace gradbus {

class ShardJob final : public HostedJob {
 public:
  ShardJob(StartShardJob start, Transport* transport);

  uint64_t id() const override { return start_.job; }
  bool remote() const override { return true; }
  // What the command says was restored; else the tensor begins with nothing.
  Status add_tensor(const AddShardTensor& add);

  size_t do_work() override;
  bool idle() const override { return true; }
  Nanos wake_at() const override;

  bool owns(LinkId link) const override { return links_.owns(link); }
  bool knows_peer(uint32_t peer) const override { return peer < links_.peers(); }
  void on_accepted(LinkId link, const FrameHeader& hello) override;
  void on_connected(LinkId link) override { links_.connected(link); }
  void on_sent(const TransportEvent& event) override;
  void on_received(const TransportEvent& event) override;
  void on_closed(const TransportEvent& event, const std::string& why) override;
  void lose_shard(uint32_t shard) override;
  void add_shards(const AddShards& command) override;
  void remove_tensor(const RemoveTensor& command) override;

  void fail(const Status& status) override;
  const Status& broken() const override { return broken_; }
  void end() override;
  bool ended() const override;

 private:
  using Tensors = ShardSnapshots::Tensors;
  // Exchange indexes of what is sent: an answer of a tensor or of a shadow, a push sent on, a part
  // that moves, a frame of a push that is not whole yet.
  enum Sent : uint16_t { kAnswer, kShadowsAnswer, kForwarded, kMovedPart, kForwardedAhead };
  struct HeldPush {  // for a tensor not added here yet, or whose last answer is still being sent
    uint32_t peer = 0;
    uint32_t buffer = 0;
    FrameHeader header;
  };
  struct Ahead {  // of an agent's push of several frames: those that the transport has
    uint64_t round = 0;
    uint32_t frames = 0;
  };
  // Of one chunk with copies: pushes and deadlines that are not taken yet.
  struct Untaken {
    BoundedQueue<HeldPush> pushes;
    std::vector<Ahead> ahead;  // by agent; none where pushes are of one frame
    bool asked = false;   // the backup was sent the front one and has not said that it is taken
    bool posted = false;  // the transport has one of this chunk
  };
  static constexpr uint32_t kNoBuffer = UINT32_MAX;  // of a deadline

  SnapshotPlace snapshot_place(uint32_t place, bool promoted) const;
  Status open_tensor(const AddShardTensor& add);
  Status expect_answers(const ShardTensor& tensor);
  ShardTensor* tensor(uint32_t id) const {
    return id < tensors_.size() ? tensors_[id].get() : nullptr;
  }
  ShardTensor* shadow(uint32_t id) const {
    return id < shadows_.size() ? shadows_[id].get() : nullptr;
  }
  Status check_frame(const TransportEvent& event, const FrameHeader& header) const;
  void on_push(const HeldPush& push);
  Status take(ShardTensor& of, const HeldPush& push);
  Status take_later(ShardTensor& of, const HeldPush& push);
  bool must_wait(const HeldPush& push) const;
  void take_held();
  void send_answers(ShardTensor& tensor);
  ShardTensor* answered(ExchangeId exchange) const;
  void run_deadlines();
  void run_deadlines(ShardTensor& tensor, Nanos now);

  // ---- copies (shard_job_copies.cc)
  Status open_copies(const ShardTensor& tensor);
  bool is_shard(uint32_t peer) const { return peer >= start_.agents; }
  // Who has the copy of this tensor's chunks here, and whose chunks this shadow has copies of.
  static uint32_t backup(const ShardTensor& tensor) {
    const CollectivePlan& plan = tensor.plan().collective;
    return plan.peer_of_shard(backup_of(tensor.plan().shard, plan.shards));
  }
  static uint32_t copied(const ShardTensor& shadow) {
    return shadow.plan().collective.peer_of_shard(shadow.plan().shard);
  }
  bool backs_up(uint32_t peer) const;
  bool is_copied(uint32_t peer) const;
  bool answers(const ShardTensor& shadow) const;
  bool forwards(const ShardTensor& tensor) const;
  bool is_of_shadow(const HeldPush& push) const;
  void put(ShardTensor& tensor, uint32_t chunk, const HeldPush& push);
  void forward_next(const ShardTensor& tensor, uint32_t chunk);
  void forward_ahead(const ShardTensor& tensor, const HeldPush& push);
  bool is_still_ahead(const ShardTensor& tensor, const HeldPush& push) const;
  void forward(const ShardTensor& tensor, uint32_t chunk, const HeldPush& push, Sent as);
  void on_forward_sent(const SendRecord& sent);
  void take_first(ShardTensor& tensor, uint32_t chunk);
  void on_taken_there(uint32_t peer, const FrameHeader& header);
  Status on_forwarded(const HeldPush& push);
  void let_go(uint32_t buffer);
  void go_on_alone(uint32_t peer);
  void promote(uint32_t peer);

  // ---- moves (shard_job_moves.cc)
  struct MovedPart {  // of the old chunk `from`, for the new one `chunk`
    uint32_t tensor = 0;
    uint32_t chunk = 0;
    uint32_t from = 0;
    uint64_t first = 0;  // element of the tensor
    uint64_t elements = 0;
  };
  struct Predecessor {  // what a tensor has taken the place of
    uint32_t id = 0;
    std::unique_ptr<ShardTensor> tensor, shadow;
    std::vector<uint32_t> awaited;  // by peer: vectors of parts that are still to come from it
    size_t unsent = 0;              // parts that wait in parts_ or are the transport's
  };
  void begin_ring(const AddShardTensor& add);
  uint32_t holder(const MovedPlan& before, uint32_t chunk) const;
  Status begin_move(const ShardPlan& plan);
  // What it is to begin with is itself still on its way here.
  bool comes_too_early(const MovedPlan& before) const;
  void begin_waiting_moves();
  Status begin_part(const ShardPlan& plan, Predecessor& from, const MovedPart& part);
  Result<const ShardTensor*> old_tensor(const Predecessor& from, uint32_t chunk) const;
  ShardTensor* new_tensor(uint32_t id, uint32_t chunk) const;
  Status keep_part(const Predecessor& from, const MovedPart& part);
  Status queue_part(const ShardPlan& plan, Predecessor& from, const MovedPart& part, uint32_t peer);
  void send_parts(uint32_t peer);
  void on_part_sent(uint32_t peer, uint32_t tensor);
  Status on_moved(const HeldPush& push);
  void place_part(ShardTensor& into, uint32_t chunk, const KeptPart& part);
  void lose_moves(uint32_t peer);
  bool is_predecessor(uint32_t id) const;
  void forget_predecessors();

  // ---- tensors that no rank uses any more (shard_job_retire.cc)
  void retire();
  bool may_forget(uint32_t id) const;
  void forget(uint32_t id);
  void forget_room(const ShardTensor& tensor);
  bool is_retired(uint32_t id) const { return id < retired_.size() && retired_[id]; }

  const StartShardJob start_;
  Transport* transport_;
  JobLinks links_;
  Tensors tensors_;                            // by id, with holes
  Tensors shadows_;                            // the same: of the shard before this one
  std::vector<std::vector<Untaken>> untaken_;  // by id and chunk
  std::vector<uint8_t> users_;                 // by receive buffer of a push that is sent on
  EndedLinks ended_links_;
  std::vector<HeldPush> held_;
  std::vector<ShardAnswer> answers_;
  std::vector<uint32_t> due_;  // chunks
  Nanos wake_at_ = 0;          // of deadlines
  struct Ring {                // that snapshots are of: the newest that a tensor lies on
    uint32_t placement = 0;
    uint64_t run = 0;
    uint32_t place = 0;  // of this shard
    std::vector<uint32_t> members;
  };
  Ring ring_;
  struct LateCredit {
    uint32_t peer = 0;
    FrameHeader header;
  };
  std::vector<LateCredit> late_credits_;          // for pushes of chunks that are not here yet
  std::map<uint32_t, Predecessor> predecessors_;  // by the new tensor
  std::vector<ShardPlan> waiting_moves_;          // of tensors whose predecessors still come
  std::vector<bool> replaced_;                    // by id: another one has its place
  std::vector<bool> retired_;                     // by id
  std::vector<uint32_t> retiring_;                // that something is still under way of
  struct PartsToSend {
    std::deque<MovedPart> parts;
    uint32_t vector = 0;  // of the first part: the next one
    uint32_t under_way = 0;
    bool expected = false;  // the links have room
  };
  std::vector<PartsToSend> parts_;  // by peer
  bool ending_ = false;
  bool lacks_tensor_ = false;  // that it should have had: it would leave half a snapshot
  std::unique_ptr<ShardSnapshots> snapshots_;       // after what it reads
  std::unique_ptr<ShardSnapshots> lost_snapshots_;  // of shadows that answer: in the name of theirs
  Status broken_;
};

}  // namespace gradbus
