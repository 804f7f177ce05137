// Modes ps:async, ps:ssp and ps:quorum of a compressed tensor on a shard: what parameter_tensor.h
// says, with payloads both ways. A chunk is a unit here (compressed/unit.h).
//
// UP. A push is a payload; it is checked when its last frame has come, decoded, and stepped on as a
// dense one is. What its codec left out is in the memory of the agent that sent it.
//
// DOWN. Of each agent and unit the shard has the *view*: the parameters as that agent has them, the
// same bits (held_unit.cc). An answer is encode(parameters - view), without any memory, and both
// sides add what it decodes to, the same operation, to the view. What the codec leaves out is in
// the next difference by itself, so this is error feedback (as in EF21, Richtarik et al. 2021, and
// DoubleSqueeze, Tang et al. 2019). It wants a codec that contracts (compression/registry.h).
//
// An answer is dense, the parameters themselves, which the view then is, in an agent's first round;
// to a pull, so that all have the same bits after a flush; where the payload would be no smaller;
// and where the codec cannot carry the difference (an overflow), or the parameters are not finite.
//
// What the optimizer remembers travels dense both ways, and says nothing of the parameters: views
// stay as they are where it is read.
//
// COPIES. A view follows from the answers, these from the parameters and the agent's round: a
// shadow encodes what it sends to nobody, and so has views and last answers, the same bits.
//
// BUFFERS. Of parameters two, for nothing is sent from them. Of each agent and unit the view, which
// dense answers are sent from and agent 0's dense pushes come into, and one payload: a push is used
// up before its answer is made, and the next one waits until that was sent (must_wait). A view is
// set aside, the only memory that is allocated later, while an answer with something else is sent.
#pragma once

#include <memory>
#include <vector>

#include "common/large_vector.h"
#include "worker_agent/shard/arriving_payloads.h"
#include "worker_agent/shard/parameter_tensor.h"

namespace gradbus {

class CodedParameters final : public ParameterTensor {
 public:
  static Result<std::unique_ptr<ShardTensor>> create(const ShardPlan& plan, Transport& transport);

  size_t answers_max() const override { return chunks_held() * frames_max_; }
  uint32_t chunk_of(const FrameHeader& header) const override { return header.exchange; }
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
  void forget_collected(uint32_t agent, uint32_t unit) override {
    arriving_.forget(pair(agent, unit));
  }
  void answer_again(uint32_t agent, uint32_t unit, std::vector<ShardAnswer>& answers) override;
  std::span<const float> values_of(const Push& push) override;
  void give(uint32_t agent, uint32_t unit, uint32_t staleness,
            std::vector<ShardAnswer>& answers) override;

 private:
  struct Answer {  // the last one to an agent, of one unit
    PayloadCut cut = {};
    bool dense = false;
    bool has_view = false;  // an earlier one brought parameters
    uint32_t staleness = 0;
    uint32_t unsent = 0;                 // frames that are the transport's
    LargeVector<float> view_aside = {};  // while the view's memory has a part that is kept
  };
  CodedParameters(const ShardPlan& plan, Transport& transport, std::unique_ptr<Codec> codec);
  Status open_coded();
  // The push, if it has a payload, is elements as they are.
  static bool comes_dense(const FrameHeader& header) {
    return header.step == 1 || writes_kept(header.source);
  }
  void make_answer(uint32_t agent, uint32_t unit);
  void give_kept(uint32_t agent, uint32_t unit);
  bool encode(uint32_t agent, uint32_t unit, PayloadCut& cut);
  void send(uint32_t agent, uint32_t unit, std::vector<ShardAnswer>& answers);

  size_t pair(uint32_t agent, uint32_t unit) const { return slot(unit) * agents() + agent; }
  size_t payload_offset(uint32_t agent, uint32_t unit) const {
    return pair(agent, unit) * (payload_bytes_ + view_bytes_);
  }
  size_t view_offset(uint32_t agent, uint32_t unit) const {
    return payload_offset(agent, unit) + payload_bytes_;
  }
  std::span<std::byte> payload(uint32_t agent, uint32_t unit) const;
  std::span<float> view(uint32_t agent, uint32_t unit) const;
  std::span<float> scratch(uint32_t unit) { return std::span(scratch_).first(elements(unit)); }

  const std::unique_ptr<Codec> codec_;
  const size_t payload_bytes_;   // of the longest, rounded up
  const size_t view_bytes_;      // the same
  const uint32_t frames_max_;    // of a payload, or of a view
  ArrivingPayloads arriving_;    // by slot and agent
  std::vector<Answer> answers_;  // the same
  LargeVector<float> scratch_;   // a gradient, then a difference
  StagingMemory coded_;          // by slot and agent: a payload, a view
};

}  // namespace gradbus
