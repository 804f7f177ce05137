// Mode ps:sync of a compressed tensor on a shard. A chunk is a partition here
// (compressed/partition.h), and a push is a payload in one or several frames. When all agents have
// pushed, the payloads are summed. The order is that of the agents, not of arrival, so that the
// same pushes give the same bits. The sum is encoded again with a residual, and all agents get the
// same bytes.
//
// A payload is checked when its last frame has arrived, before anything is summed. The step's
// memory scale also multiplies this residual; agent 0's value is used.
//
// A copy sums and encodes like the shard that it copies, so it has the same residual and the same
// answer.
//
// MOVES. The residual of the second encoding is the only state between rounds. A tensor that has
// moved sums payloads after it has received this residual.
//
// BUFFERS. Each partition has one buffer per agent for the incoming payload, and one for the
// answer. The answer is written when all agents have pushed. No agent can push before its last
// answer was sent (must_wait), so one answer buffer is enough.
#pragma once

#include <memory>
#include <vector>

#include "compression/error_feedback.h"
#include "server/parameter_server/arriving_payloads.h"
#include "server/parameter_server/shard_tensor.h"

namespace gradbus {

// Whether it keeps a residual of its encoding.
bool keeps_second_residual(const ShardPlan& plan);

class PayloadTensor final : public ShardTensor {
 public:
  static Result<std::unique_ptr<ShardTensor>> create(const ShardPlan& plan, Transport& transport);

  size_t answers_max() const override { return chunks_stored() * frames_max_; }
  uint32_t chunk_of(const FrameHeader& header) const override { return header.operation; }
  void on_sent(const ShardAnswer& answer) override;
  Slice slice(const ShardAnswer& answer) const override;
  FrameHeader frame(const ShardAnswer& answer) const override;
  Status begin_to_leave() override;
  uint32_t state_vectors() const override { return keeps_second_residual(plan()) ? 1 : 0; }
  bool is_set(uint32_t partition) const override { return partitions_[slot(partition)].lacks == 0; }
  std::span<const float> state_values(uint32_t partition, uint32_t vector) const override;
  Slice state_slice(uint32_t partition, uint32_t vector, uint64_t first,
                    uint64_t elements) const override;
  bool take_state(uint32_t partition, const ShardChunkPart& part,
                  std::vector<ShardAnswer>& answers) override;

 protected:
  Status check_piece(uint32_t agent, const FrameHeader& header) const override;
  Result<bool> collect(uint32_t agent, const FrameHeader& header,
                       std::span<const std::byte> payload) override;
  bool collect_again(uint32_t agent, const FrameHeader& header) override {
    return arriving_.take(sender(agent, chunk_of(header)), header, {}, nullptr);
  }
  void forget_collected(uint32_t agent, uint32_t partition) override {
    arriving_.forget(sender(agent, partition));
  }
  void answer_again(uint32_t agent, uint32_t partition, std::vector<ShardAnswer>& answers) override;
  void take(const Push& push, Nanos now, std::vector<ShardAnswer>& answers) override;

 private:
  struct Partition {
    std::unique_ptr<Codec> codec;  // of the sum
    ErrorFeedback error_feedback;  // the residual of the sum
    float residual_scale = 1;      // of this round
    uint32_t arrived = 0;          // payloads of this round
    PayloadCut answer = {};
    uint64_t lacks = 0;  // elements of the residual that other shards still have to send
  };
  PayloadTensor(const ShardPlan& plan, Transport& transport, std::unique_ptr<Codec> codec);
  size_t payload_bytes_max(uint32_t partition) const;
  std::span<std::byte> pushed(uint32_t partition, uint32_t agent) const;
  void answer_if_whole(uint32_t partition, std::vector<ShardAnswer>& answers);
  uint64_t leaving_offset(uint32_t partition) const {
    return slot(partition) * plan().collective.chunk_elements * sizeof(float);
  }
  void sum(uint32_t partition);
  void encode(uint32_t partition, uint64_t round);
  void send(uint32_t agent, uint32_t partition, std::vector<ShardAnswer>& answers);
  size_t sender(uint32_t agent, uint32_t partition) const {
    return slot(partition) * agents() + agent;
  }
  uint32_t answer_buffer() const { return agents(); }

  const std::unique_ptr<Codec> codec_;  // codec of pushes
  const uint32_t frames_max_;           // frames per payload
  std::vector<Partition> partitions_;   // by slot
  ArrivingPayloads arriving_;           // by slot and agent
  // By slot and agent: frames of the last answer that the transport still has.
  std::vector<uint32_t> unsent_;
  LargeVector<float> sum_;  // of the partition that is being summed
  StagingMemory leaving_;   // by slot: residuals for the tensor that replaces this one
};

}  // namespace gradbus
