// An all-reduce that NCCL carries out between the nodes' GPUs. The agents only exchange the order
// of turns, and no data.
//
// WHY TURNS. All ranks of an NCCL communicator must call the same collectives in the same order, or
// they deadlock. Tensors become ready in different orders on different nodes, and one communicator
// for each of hundreds of buckets would cost too much. So agent 0 assigns turns. When a node's sum
// of a tensor's round is complete in memory of its GPU, its agent sends agent 0 the credit of the
// round. When all credits have arrived and its own sum is complete, agent 0 assigns the job's next
// turn to the tensor. It sends every agent an empty frame with the turn's number. Each agent's NCCL
// process runs the turns one by one (nccl_queue.h), in the order of their numbers, because frames
// may overtake each other.
//
// So only tensors that are ready on all nodes get a turn. No turn waits for a rank, no later turn
// waits for such a turn, and the deadline of NCCL's call measures NCCL's own time. The cost is a
// message to agent 0 and one back, while other turns run.
#pragma once

#include <vector>

#include "data_plane/collectives/collective.h"

namespace gradbus {

class NcclTurns final : public Collective {
 public:
  explicit NcclTurns(const CollectivePlan& plan);

  const CollectiveNeeds& needs() const override { return needs_; }
  void open(std::vector<Action>&) override {}
  void begin(uint64_t round, std::span<const uint64_t> block_bytes,
             std::vector<Action>& actions) override;
  void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) override;
  Status on_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                  std::vector<Action>& actions) override;
  Status on_credit(uint32_t from, uint64_t round, std::vector<Action>& actions) override;
  void on_sent(const Action& send, std::vector<Action>& actions) override;
  void on_turn_ended(std::vector<Action>& actions) override;
  uint64_t active_round() const override { return active_ ? begun_ : 0; }

 private:
  bool gives() const { return plan_.agent_index == 0; }
  Status check(uint32_t from, const FrameHeader& header) const;
  void give_turn(std::vector<Action>& actions);
  void take_turn(uint64_t turn, std::vector<Action>& actions);
  void finish(std::vector<Action>& actions);

  const CollectivePlan plan_;
  CollectiveNeeds needs_;
  uint64_t begun_ = 0;
  bool active_ = false;
  uint32_t reduced_ = 0;           // complete chunks of this node's sum
  std::vector<uint64_t> credits_;  // agent 0 only: by agent, the last round
  bool has_turn_ = false;
  bool turn_ended_ = false;
  uint32_t in_flight_ = 0;
};

}  // namespace gradbus
