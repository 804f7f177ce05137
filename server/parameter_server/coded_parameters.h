// Modes ps:async, ps:ssp and ps:quorum of a compressed tensor on a shard. It works like
// parameter_tensor.h, with payloads in both directions. A chunk is a partition here
// (compressed/partition.h).
//
// UP. A push is a payload. It is checked when its last frame has arrived, decoded, and used for a
// step like a dense gradient. The agent that sent it keeps the residual.
//
// DOWN. For each agent and partition the shard has the *view*: the parameters as that agent has
// them, bit for bit (async_ps.cc). An answer is encode(parameters - view), without a residual. Both
// sides decode it and add it to the view with the same operation. Whatever the codec omits is part
// of the next difference. So this is error feedback, as in EF21 (Richtarik et al. 2021) and
// DoubleSqueeze (Tang et al. 2019). It needs a codec that contracts (compression/registry.h).
//
// An answer is dense in four cases. Then it contains the parameters, which become the view. The
// cases: an agent's first round; a pull, so that all agents have the same bits after a flush; a
// payload that would not be smaller; and a difference that the codec cannot represent (an overflow,
// or parameters that are not finite).
//
// The optimizer state is sent dense in both directions. It does not concern the parameters, so
// reading it does not change the views.
//
// COPIES. A view follows from the answers, and these from the parameters and the agent's round. A
// copy of a tensor encodes its answers too, without sending them. So it has the same views and last
// answers, bit for bit.
//
// BUFFERS. There are two for the parameters, because nothing is sent from them. Each agent and
// partition has a view and one payload. Dense answers are sent from the view, and dense pushes of
// agent 0 arrive there. A push is consumed before its answer is made, and the next push waits until
// that was sent (must_wait). While an answer with kept state is sent, the view is set aside. That
// is the only later allocation.
#pragma once

#include <memory>
#include <vector>

#include "common/large_vector.h"
#include "server/parameter_server/arriving_payloads.h"
#include "server/parameter_server/parameter_tensor.h"

namespace gradbus {

class CodedParameters final : public ParameterTensor {
 public:
  static Result<std::unique_ptr<ShardTensor>> create(const ShardPlan& plan, Transport& transport);

  size_t answers_max() const override { return chunks_stored() * frames_max_; }
  uint32_t chunk_of(const FrameHeader& header) const override { return header.operation; }
  void on_sent(const ShardAnswer& answer) override;
  Slice slice(const ShardAnswer& answer) const override;
  FrameHeader frame(const ShardAnswer& answer) const override;

 protected:
  Status check_piece(uint32_t agent, const FrameHeader& header) const override;
  Result<bool> collect(uint32_t agent, const FrameHeader& header,
                       std::span<const std::byte> payload) override;
  bool collect_again(uint32_t agent, const FrameHeader& header) override {
    return arriving_.take(pair(agent, chunk_of(header)), header, {}, nullptr);
  }
  void forget_collected(uint32_t agent, uint32_t partition) override {
    arriving_.forget(pair(agent, partition));
  }
  void answer_again(uint32_t agent, uint32_t partition, std::vector<ShardAnswer>& answers) override;
  std::span<const float> values_of(const Push& push) override;
  void give(uint32_t agent, uint32_t partition, uint32_t staleness,
            std::vector<ShardAnswer>& answers) override;

 private:
  struct Answer {  // the latest answer to an agent for one partition
    PayloadCut cut = {};
    bool dense = false;
    bool has_view = false;  // an earlier answer contained parameters
    uint32_t staleness = 0;
    uint32_t unsent = 0;  // frames that the transport still has
    // Used while the view's memory contains a part of the kept state.
    LargeVector<float> view_aside = {};
  };
  CodedParameters(const ShardPlan& plan, Transport& transport, std::unique_ptr<Codec> codec);
  Status open_coded();
  // Whether the push, if it has a payload, is uncompressed elements.
  static bool comes_dense(const FrameHeader& header) {
    return header.step == 1 || writes_optimizer_state(header.source);
  }
  void make_answer(uint32_t agent, uint32_t partition);
  void give_optimizer_state(uint32_t agent, uint32_t partition);
  bool encode(uint32_t agent, uint32_t partition, PayloadCut& cut);
  void send(uint32_t agent, uint32_t partition, std::vector<ShardAnswer>& answers);

  size_t pair(uint32_t agent, uint32_t partition) const {
    return slot(partition) * agents() + agent;
  }
  size_t payload_offset(uint32_t agent, uint32_t partition) const {
    return pair(agent, partition) * (payload_bytes_ + view_bytes_);
  }
  size_t view_offset(uint32_t agent, uint32_t partition) const {
    return payload_offset(agent, partition) + payload_bytes_;
  }
  std::span<std::byte> payload(uint32_t agent, uint32_t partition) const;
  std::span<float> view(uint32_t agent, uint32_t partition) const;
  std::span<float> scratch(uint32_t partition) {
    return std::span(scratch_).first(elements(partition));
  }

  const std::unique_ptr<Codec> codec_;
  const size_t payload_bytes_;   // of the longest payload, rounded up
  const size_t view_bytes_;      // size of a view, rounded up
  const uint32_t frames_max_;    // the most frames of a payload or view
  ArrivingPayloads arriving_;    // by slot and agent
  std::vector<Answer> answers_;  // by slot and agent
  LargeVector<float> scratch_;   // a gradient, then a difference
  StagingMemory coded_;          // by slot and agent: a payload, a view
};

}  // namespace gradbus
