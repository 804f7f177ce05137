// One job on a shard: the tensors that it aggregates, and its links to the job's agents. It has no
// ranks and no shared memory.
//
// COPIES. With mode option replicas=2 the next shard is this one's backup: it has a shadow of each
// tensor (shard_tensor.h), and this one has those of the shard before it. A push is first sent on
// to the backup, from the buffer it lies in, and taken here when the backup has said that it has
// taken it. So nothing is answered that the backup has not got, and it is always as far as this one
// or a step ahead. Frames overtake each other, but only the order within a chunk matters: one push
// of a chunk is on its way at a time, the others wait in their receive buffers.
//
// A LOST SHARD. The backup's shadows answer from then on (promote), but not before the link from
// the lost shard has ended: what is still in it comes first. Pushes wait until then. The shard
// whose backup is lost takes what waits, and goes on alone. The coordinator sees to it that not
// both shards of a chunk are lost.
// Snapshots of what the lost shard held are written by the backup then, as the lost one's.
//
// Engine thread only.
#pragma once

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
  void on_accepted(LinkId link, const FrameHeader& hello) override;
  void on_connected(LinkId link) override { links_.connected(link); }
  void on_sent(const TransportEvent& event) override;
  void on_received(const TransportEvent& event) override;
  void on_closed(const TransportEvent& event, const std::string& why) override;
  void lose_shard(uint32_t shard) override;

  const Status& broken() const override { return broken_; }
  void end() override;
  bool ended() const override;

 private:
  using Tensors = ShardSnapshots::Tensors;
  // Exchange indexes of what is sent: an answer of a tensor or of a shadow, a push sent on.
  enum Sent : uint16_t { kAnswer, kShadowsAnswer, kForwarded };
  struct HeldPush {  // for a tensor not added here yet, or whose last answer is still being sent
    uint32_t peer = 0;
    uint32_t buffer = 0;
    FrameHeader header;
  };
  // Of one chunk with copies: pushes and deadlines that are not taken yet.
  struct Untaken {
    BoundedQueue<HeldPush> pushes;
    bool asked = false;   // the backup was sent the front one and has not said that it is taken
    bool posted = false;  // the transport has one of this chunk
  };
  static constexpr uint32_t kNoBuffer = UINT32_MAX;  // of a deadline

  SnapshotPlace place(uint32_t shard) const;
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
  bool must_wait(const HeldPush& push) const;
  void take_held();
  void send_answers(ShardTensor& tensor);
  void run_deadlines();
  void run_deadlines(ShardTensor& tensor, Nanos now);
  void fail(const Status& status);

  // ---- copies (shard_job_copies.cc)
  Status open_copies(const ShardTensor& tensor);
  bool is_shard(uint32_t peer) const { return peer >= start_.agents; }
  uint32_t backup() const { return start_.agents + backup_of(start_.shard, start_.shards); }
  uint32_t copied() const { return start_.agents + backed_up_by(start_.shard, start_.shards); }
  bool forwards(const ShardTensor& tensor) const;
  bool is_of_shadow(const HeldPush& push) const;
  void put(ShardTensor& tensor, uint32_t chunk, const HeldPush& push);
  void forward_next(const ShardTensor& tensor, uint32_t chunk);
  void on_forward_sent(const SendRecord& sent);
  void take_first(ShardTensor& tensor, uint32_t chunk);
  void on_taken_there(uint32_t peer, const FrameHeader& header);
  Status on_forwarded(const HeldPush& push);
  void let_go(uint32_t buffer);
  void go_on_alone();
  void promote();

  const StartShardJob start_;
  Transport* transport_;
  JobLinks links_;
  Tensors tensors_;                            // by id, with holes
  Tensors shadows_;                            // the same: of the shard before this one
  std::vector<std::vector<Untaken>> untaken_;  // by id and chunk
  std::vector<uint8_t> users_;                 // by receive buffer of a push that is sent on
  bool alone_ = false;                         // the backup is lost
  bool promoted_ = false;                      // shadows answer
  EndedLinks ended_links_;
  std::vector<HeldPush> held_;
  std::vector<ShardAnswer> answers_;
  std::vector<uint32_t> due_;  // chunks
  Nanos wake_at_ = 0;          // of deadlines
  bool ending_ = false;
  bool lacks_tensor_ = false;  // that it should have had: it would leave half a snapshot
  ShardSnapshots snapshots_;   // after what it reads
  std::unique_ptr<ShardSnapshots> lost_snapshots_;  // of shadows that answer: in the name of theirs
  Status broken_;
};

}  // namespace gradbus
