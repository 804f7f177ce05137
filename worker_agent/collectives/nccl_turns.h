// An all-reduce that NCCL carries out between the nodes' GPUs: what agents say to each other is
// whose turn it is, and no byte of it.
//
// WHY TURNS. All ranks of an NCCL communicator must call the same collectives in the same order, or
// they wait for each other for ever. Tensors become ready in other orders on other nodes, and a
// communicator for each of hundreds of buckets is too much. So agent 0 gives turns: when a node's
// sum of a tensor's round is complete in memory of its GPU, its agent sends agent 0 the round's
// credit; when all have, and agent 0's own sum is complete, agent 0 gives the tensor the job's next
// turn and sends every agent an empty frame with the turn's number. Each agent has its NCCL process
// do one turn after the other (nccl_queue.h), by their numbers, since frames may overtake another.
//
// So a turn is given only to what is ready everywhere: no turn waits for a rank, none waits for
// one after it, and the deadline of NCCL's call counts NCCL's own time. It costs a message to agent
// 0 and one back, while other turns are at work.
#pragma once

#include <vector>

#include "worker_agent/collectives/collective.h"

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
  uint32_t reduced_ = 0;           // chunks of this node's sum
  std::vector<uint64_t> credits_;  // agent 0's: by agent, the last round
  bool has_turn_ = false;
  bool turn_ended_ = false;
  uint32_t in_flight_ = 0;
};

}  // namespace gradbus
