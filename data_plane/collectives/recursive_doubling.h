// All-reduce of a small tensor as a whole, in ceil(log2(agents)) exchanges (Thakur, Rabenseifner
// and Gropp 2005, section 4.5). In exchange k, agent i swaps its sum with agent i ^ 2^k, and both
// combine the two sums. With two agents that is one message each way, in parallel.
//
// Let p be the largest power of two that is not above the number of agents. Agent p + i sends its
// sum to agent i before the exchanges and gets the result from it after them.
//
// EAGER. There are no credits, because a credit would cost as much as the exchange. So a frame may
// arrive before this agent has begun the round. Its payload is copied at once to its own stash
// slot, and the buffer is free again. Slots for two rounds are enough, because a sender is at most
// one round ahead: its frame of round r + 1 comes after we have begun r. Proof by kind of sender.
// The partner of an exchange began r + 1 after it had finished r, which needed our sum of r. Agent
// p + i had also finished r, which needed our result of r. The result that agent i sends in r + 1
// contains our own sum of r + 1. Only the first frame ever waits for a credit, which reports that
// the tensor is registered at the other end.
//
// Both agents of an exchange combine the sum of the lower agents with that of the higher agents, in
// this order. So all agents get the same bits: the bits of a NaN depend on the order of operands.
#pragma once

#include <vector>

#include "data_plane/collectives/collective.h"

namespace gradbus {

class RecursiveDoubling final : public Collective {
 public:
  explicit RecursiveDoubling(const CollectivePlan& plan);

  const CollectiveNeeds& needs() const override { return needs_; }
  void open(std::vector<Action>& actions) override;
  void begin(uint64_t round, std::span<const uint64_t> block_bytes,
             std::vector<Action>& actions) override;
  void on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) override;
  Status on_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                  std::vector<Action>& actions) override;
  Status on_credit(uint32_t from, uint64_t round, std::vector<Action>& actions) override;
  void on_sent(const Action& send, std::vector<Action>& actions) override;
  uint64_t active_round() const override { return active_ ? begun_ : 0; }

 private:
  // The steps of a round, in order. An exchange is a kSendSum and a kAddSum with one peer.
  enum class Move : uint8_t { kSendSum, kAddSum, kFinalize, kSendResult, kTakeResult };
  struct Step {
    Move move = Move::kFinalize;
    uint32_t peer = 0;
    uint32_t slot = 0;  // kAddSum, kTakeResult: uses slot or slot + 1 of the stash, by round
  };

  void plan_steps(const CollectivePlan& plan);
  void add_step(Move move, uint32_t peer);
  const Step* receiving_step(uint32_t from) const;
  static bool sends(Move move) { return move == Move::kSendSum || move == Move::kSendResult; }
  static uint32_t slot(const Step& step, uint64_t round) { return step.slot + round % 2; }
  bool may_take(const Step& step) const;
  void advance(std::vector<Action>& actions);
  bool carry_out(const Step& step, std::vector<Action>& actions);
  Action take(const Step& step) const;
  Action act(Action::Kind kind) const;
  Status check(uint32_t from, const FrameHeader& header) const;

  const CollectivePlan plan_;
  const uint64_t bytes_;
  CollectiveNeeds needs_;
  std::vector<Step> steps_;
  std::vector<uint64_t> arrived_;  // by stash slot: round of its last frame
  std::vector<bool> registered_;   // by agent: the tensor is registered there
  uint64_t begun_ = 0;
  size_t next_ = 0;  // next step of this round
  bool active_ = false;
  bool reduced_ = false;
  bool in_flight_ = false;  // the transport has the memory of the sum
};

}  // namespace gradbus
