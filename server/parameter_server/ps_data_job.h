// One job on a shard: the tensors that it aggregates, and its links to the job's agents. It has no
// ranks and no shared memory.
//
// COPIES. With mode option replicas=2 the next shard is the backup of this one. The backup has a
// backup replica of each tensor (shard_tensor.h). This shard has the backup replicas of the shard
// before it. It first forwards a push to the backup, from its receive buffer. It applies the push
// after the backup has confirmed it. So every answered push is on the backup,
// which is never behind and at most a step ahead. Frames may overtake each other, but only the
// order within a chunk matters. So one push of a chunk is in flight at a time, and the others wait
// in their receive buffers. If a push has several frames, those before the last one are sent ahead
// of it, and both shards store them.
//
// A LOST SHARD. The backup's replicas then answer (promote), but only after the link from the lost
// shard has ended, because frames in it come first. Pushes wait until then. A shard whose backup is
// lost applies the waiting pushes and continues alone. The coordinator ensures that not both shards
// of a chunk are lost. The backup then also writes the snapshots of the lost shard, in its name.
//
// MOVES. When shards are added or removed, a tensor is registered again on the current ones. It
// begins with the state of its predecessor, which the predecessor's shards send
// (ps_data_job_resharding.cc).
//
// Engine thread only.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "data_plane/data_job.h"
#include "data_plane/ended_links.h"
#include "data_plane/job_links.h"
#include "proto/placement.h"
#include "server/parameter_server/shard_commands.h"
#include "server/parameter_server/shard_snapshots.h"
#include "server/parameter_server/shard_tensor.h"
#include "transport/bounded_queue.h"

namespace gradbus {

class PsDataJob final : public DataJob {
 public:
  PsDataJob(StartShardJob start, Transport* transport);

  uint64_t id() const override { return start_.job; }
  bool remote() const override { return true; }
  // The tensor starts with the restored chunks of the command, or without state.
  Status add_tensor(const AddShardTensor& add);

  size_t do_work() override;
  bool idle() const override { return true; }
  Nanos wake_at() const override;

  bool owns(LinkId link) const override { return links_.owns(link); }
  bool knows_peer(uint32_t peer) const override { return peer < links_.peers(); }
  Status on_accepted(LinkId link, const FrameHeader& hello) override;
  void on_connected(LinkId link) override { links_.connected(link); }
  void on_sent(const TransportEvent& event) override;
  void on_received(const TransportEvent& event) override;
  void on_closed(const TransportEvent& event, const std::string& why) override;
  void expect_reports_by(Nanos at) override { ended_links_.expect_reports_by(at); }
  void lose_shard(uint32_t shard) override;
  void add_shards(const AddShards& command) override;
  void remove_tensor(const RemoveTensor& command) override;

  void fail(const Status& status) override;
  const Status& broken() const override { return broken_; }
  void end() override;
  bool ended() const override;

 private:
  using Tensors = ShardSnapshots::Tensors;
  // Exchange indexes of sent frames: an answer of a tensor or of a copy, a forwarded push, a part
  // that moves, a forwarded frame of an incomplete push.
  enum Sent : uint16_t { kAnswer, kBackupsAnswer, kForwarded, kReshardedPart, kForwardedAhead };
  // For a tensor that is not added here yet, or whose last answer is still being sent.
  struct DeferredPush {
    uint32_t peer = 0;
    uint32_t buffer = 0;
    FrameHeader header;
  };
  struct Ahead {  // frames of an agent's push of several frames that the transport has
    uint64_t round = 0;
    uint32_t frames = 0;
  };
  // Pushes and deadlines that are not applied yet, of one chunk with copies.
  struct Untaken {
    BoundedQueue<DeferredPush> pushes;
    std::vector<Ahead> ahead;  // by agent; empty if pushes have one frame
    bool asked = false;        // the backup got the front one and has not confirmed it
    bool posted = false;       // the transport has a frame of this chunk
  };
  static constexpr uint32_t kNoBuffer = UINT32_MAX;  // for a deadline

  SnapshotPlace snapshot_place(uint32_t place, bool promoted) const;
  Status open_tensor(const AddShardTensor& add);
  Status expect_answers(const ShardTensor& tensor);
  ShardTensor* tensor(uint32_t id) const {
    return id < tensors_.size() ? tensors_[id].get() : nullptr;
  }
  ShardTensor* backup_replica(uint32_t id) const {
    return id < backups_.size() ? backups_[id].get() : nullptr;
  }
  Status check_frame(const TransportEvent& event, const FrameHeader& header) const;
  void on_push(const DeferredPush& push);
  Status take(ShardTensor& of, const DeferredPush& push);
  Status take_later(ShardTensor& of, const DeferredPush& push);
  bool must_wait(const DeferredPush& push) const;
  void take_deferred();
  void send_answers(ShardTensor& tensor);
  ShardTensor* answered(OperationId operation) const;
  void run_deadlines();
  void run_deadlines(ShardTensor& tensor, Nanos now);

  // ---- copies (ps_data_job_copies.cc)
  Status open_copies(const ShardTensor& tensor);
  bool is_shard(uint32_t peer) const { return peer >= start_.agents; }
  // The shard with the copies of this tensor's chunks, and the shard that a copy belongs to.
  static uint32_t backup(const ShardTensor& tensor) {
    const CollectivePlan& plan = tensor.plan().collective;
    return plan.peer_of_shard(backup_of(tensor.plan().shard, plan.shards));
  }
  static uint32_t copied(const ShardTensor& backup_replica) {
    return backup_replica.plan().collective.peer_of_shard(backup_replica.plan().shard);
  }
  bool backs_up(uint32_t peer) const;
  bool is_copied(uint32_t peer) const;
  bool answers(const ShardTensor& backup_replica) const;
  bool forwards(const ShardTensor& tensor) const;
  bool is_of_backup(const DeferredPush& push) const;
  void put(ShardTensor& tensor, uint32_t chunk, const DeferredPush& push);
  void forward_next(const ShardTensor& tensor, uint32_t chunk);
  void forward_ahead(const ShardTensor& tensor, const DeferredPush& push);
  bool is_still_ahead(const ShardTensor& tensor, const DeferredPush& push) const;
  void forward(const ShardTensor& tensor, uint32_t chunk, const DeferredPush& push, Sent as);
  void on_forward_sent(const SendRecord& sent);
  void take_first(ShardTensor& tensor, uint32_t chunk);
  void on_taken_there(uint32_t peer, const FrameHeader& header);
  Status on_forwarded(const DeferredPush& push);
  void let_go(uint32_t buffer);
  void go_on_alone(uint32_t peer);
  void promote(uint32_t peer);

  // ---- moves (ps_data_job_resharding.cc)
  struct ReshardedPart {  // of the old chunk `from`, for the new one `chunk`
    uint32_t tensor = 0;
    uint32_t chunk = 0;
    uint32_t from = 0;
    uint64_t first = 0;  // first element in the tensor
    uint64_t elements = 0;
  };
  struct Predecessor {  // the tensor that another one replaces
    uint32_t id = 0;
    std::unique_ptr<ShardTensor> tensor, backup_replica;
    std::vector<uint32_t> awaited;  // by peer: vectors of parts that it still has to send
    size_t unsent = 0;              // parts that wait in parts_ or that the transport has
  };
  void begin_shard_set(const AddShardTensor& add);
  uint32_t holder(const ReshardingPlan& before, uint32_t chunk) const;
  Status begin_move(const ShardPlan& plan);
  // Whether the state of its predecessor is itself still being sent to this shard.
  bool comes_too_early(const ReshardingPlan& before) const;
  void begin_waiting_moves();
  Status begin_part(const ShardPlan& plan, Predecessor& from, const ReshardedPart& part);
  Result<const ShardTensor*> old_tensor(const Predecessor& from, uint32_t chunk) const;
  ShardTensor* new_tensor(uint32_t id, uint32_t chunk) const;
  Status keep_part(const Predecessor& from, const ReshardedPart& part);
  Status queue_part(const ShardPlan& plan, Predecessor& from, const ReshardedPart& part,
                    uint32_t peer);
  void send_parts(uint32_t peer);
  void on_part_sent(uint32_t peer, uint32_t tensor);
  Status on_moved(const DeferredPush& push);
  void place_part(ShardTensor& into, uint32_t chunk, const ShardChunkPart& part);
  void lose_moves(uint32_t peer);
  bool is_predecessor(uint32_t id) const;
  void forget_predecessors();

  // ---- tensors that no rank uses any more (ps_data_job_retire.cc)
  void retire();
  bool may_forget(uint32_t id) const;
  void forget(uint32_t id);
  void forget_room(const ShardTensor& tensor);
  bool is_retired(uint32_t id) const { return id < retired_.size() && retired_[id]; }

  const StartShardJob start_;
  Transport* transport_;
  JobLinks links_;
  Tensors tensors_;  // by id, with holes
  // By id, with holes: copies of the previous shard's tensors.
  Tensors backups_;
  std::vector<std::vector<Untaken>> untaken_;  // by id and chunk
  // Users of each receive buffer whose push is forwarded.
  std::vector<uint8_t> users_;
  EndedLinks ended_links_;
  std::vector<DeferredPush> deferred_;
  std::vector<ShardAnswer> answers_;
  std::vector<uint32_t> due_;  // chunks with a deadline that is due
  Nanos wake_at_ = 0;          // next deadline
  struct ShardSet {            // the newest shards that a tensor is on; snapshots are of these
    uint32_t placement = 0;
    uint64_t run = 0;
    uint32_t place = 0;  // of this shard in `members`
    std::vector<uint32_t> members;
  };
  ShardSet shard_set_;
  struct LateCredit {
    uint32_t peer = 0;
    FrameHeader header;
  };
  std::vector<LateCredit> late_credits_;          // for pushes of chunks that are not here yet
  std::map<uint32_t, Predecessor> predecessors_;  // by id of the new tensor
  std::vector<ShardPlan> waiting_moves_;          // tensors whose predecessors are still being sent
  std::vector<bool> replaced_;                    // by id: another tensor replaces it
  std::vector<bool> retired_;                     // by id
  std::vector<uint32_t> retiring_;                // tensors with frames in flight
  struct PartsToSend {
    std::deque<ReshardedPart> parts;
    uint32_t vector = 0;  // of the first part: the next vector
    uint32_t under_way = 0;
    bool expected = false;  // whether the links have room
  };
  std::vector<PartsToSend> parts_;  // by peer
  bool ending_ = false;
  bool lacks_tensor_ = false;                  // a missing tensor would make a snapshot incomplete
  std::unique_ptr<ShardSnapshots> snapshots_;  // declared after everything that it reads
  // Of promoted copies, in the name of the lost shard.
  std::unique_ptr<ShardSnapshots> lost_snapshots_;
  Status broken_;
};

}  // namespace gradbus
