// One job on a shard: the tensors that it aggregates, and its links to the job's agents. It has no
// ranks and no shared memory.
//
// Engine thread only.
#pragma once

#include <memory>
#include <string>
#include <vector>

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

  const Status& broken() const override { return broken_; }
  void end() override;
  bool ended() const override { return links_.closed() && snapshots_.ended(); }

 private:
  struct HeldPush {  // for a tensor not added here yet, or whose last answer is still being sent
    uint32_t agent = 0;
    uint32_t buffer = 0;
    FrameHeader header;
  };
  Status open_tensor(const AddShardTensor& add);
  ShardTensor* tensor(uint32_t id) const;
  Status check_frame(const TransportEvent& event, const FrameHeader& header) const;
  void on_push(const HeldPush& push);
  bool must_wait(const HeldPush& push) const;
  void take_held();
  void send_answers(const ShardTensor& tensor);
  void run_deadlines();
  void fail(const Status& status);

  const StartShardJob start_;
  Transport* transport_;
  JobLinks links_;
  std::vector<std::unique_ptr<ShardTensor>> tensors_;  // by id, with holes
  std::vector<HeldPush> held_;
  std::vector<ShardAnswer> answers_;
  Nanos wake_at_ = 0;  // of deadlines
  bool ending_ = false;
  bool lacks_tensor_ = false;  // that it should have had: it would leave half a snapshot
  ShardSnapshots snapshots_;   // after what it reads
  Status broken_;
};

}  // namespace gradbus
