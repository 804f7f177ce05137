// Mode ps:sync of a compressed tensor on a shard: a chunk is a unit here (compressed/unit.h), and a
// push is a payload in one frame or several. When every agent's is there they are summed as they
// are, in the order of the agents and not of arrival, so that the same pushes give the same bits;
// the sum is encoded once more, with a memory of what that leaves out, and all get the same bytes.
//
// A payload is checked when its last frame has come, before anything is summed. What is multiplied
// by the step's memory scale is this memory, too: agent 0's word counts.
//
// A shadow sums and encodes as its first copy does, so it has the same memory and the same answer.
//
// MOVES. What the second encoding has left out is all that is kept between rounds. One that has
// moved sums payloads when it has that.
//
// BUFFERS. Of each unit one per agent, for the payload that comes in, and one for the answer. It is
// written when all agents have pushed, and none can before its last answer was sent (must_wait), so
// no second is ever needed.
#pragma once

#include <memory>
#include <vector>

#include "compression/memory.h"
#include "worker_agent/shard/arriving_payloads.h"
#include "worker_agent/shard/shard_tensor.h"

namespace gradbus {

// It keeps what its encoding leaves out.
bool keeps_second_residual(const ShardPlan& plan);

class PayloadTensor final : public ShardTensor {
 public:
  static Result<std::unique_ptr<ShardTensor>> create(const ShardPlan& plan, Transport& transport);

  size_t answers_max() const override { return chunks_held() * frames_max_; }
  uint32_t chunk_of(const FrameHeader& header) const override { return header.exchange; }
  void on_sent(const ShardAnswer& answer) override;
  Slice slice(const ShardAnswer& answer) const override;
  FrameHeader frame(const ShardAnswer& answer) const override;
  Status begin_to_leave() override;
  uint32_t vectors_kept() const override { return keeps_second_residual(plan()) ? 1 : 0; }
  bool is_set(uint32_t unit) const override { return units_[slot(unit)].lacks == 0; }
  std::span<const float> kept_values(uint32_t unit, uint32_t vector) const override;
  Slice kept_slice(uint32_t unit, uint32_t vector, uint64_t first,
                   uint64_t elements) const override;
  bool take_kept(uint32_t unit, const KeptPart& part, std::vector<ShardAnswer>& answers) override;

 protected:
  Status check_piece(uint32_t agent, const FrameHeader& header) const override;
  Result<bool> collect(uint32_t agent, const FrameHeader& header,
                       std::span<const std::byte> payload) override;
  bool collect_again(uint32_t agent, const FrameHeader& header) override {
    return arriving_.take(sender(agent, chunk_of(header)), header, {}, nullptr);
  }
  void forget_collected(uint32_t agent, uint32_t unit) override {
    arriving_.forget(sender(agent, unit));
  }
  void answer_again(uint32_t agent, uint32_t unit, std::vector<ShardAnswer>& answers) override;
  void take(const Push& push, Nanos now, std::vector<ShardAnswer>& answers) override;

 private:
  struct Unit {
    std::unique_ptr<Codec> codec;  // of the sum
    Memory memory;                 // the same
    float memory_scale = 1;        // in this round
    uint32_t arrived = 0;          // payloads, of this round
    PayloadCut answer = {};
    uint64_t lacks = 0;  // elements of the memory that are still to come from other shards
  };
  PayloadTensor(const ShardPlan& plan, Transport& transport, std::unique_ptr<Codec> codec);
  size_t payload_bytes_max(uint32_t unit) const;
  std::span<std::byte> pushed(uint32_t unit, uint32_t agent) const;
  void answer_if_whole(uint32_t unit, std::vector<ShardAnswer>& answers);
  uint64_t leaving_offset(uint32_t unit) const {
    return slot(unit) * plan().collective.chunk_elements * sizeof(float);
  }
  void sum(uint32_t unit);
  void encode(uint32_t unit, uint64_t round);
  void send(uint32_t agent, uint32_t unit, std::vector<ShardAnswer>& answers);
  size_t sender(uint32_t agent, uint32_t unit) const { return slot(unit) * agents() + agent; }
  uint32_t answer_buffer() const { return agents(); }

  const std::unique_ptr<Codec> codec_;  // of pushes
  const uint32_t frames_max_;           // of a payload
  std::vector<Unit> units_;             // by slot
  ArrivingPayloads arriving_;           // by slot and agent
  std::vector<uint32_t> unsent_;        // the same: frames of the last answer, the transport's
  LargeVector<float> sum_;              // of the unit that is being summed
  StagingMemory leaving_;               // by slot: memories, where another one takes their place
};

}  // namespace gradbus
