// Modes ps:async, ps:ssp and ps:quorum on a shard, with an optimizer whose step on an element
// depends on the whole tensor (lamb). It works like parameter_tensor.h with one chunk that is the
// whole tensor. All chunks of the tensor are on one shard (CollectivePlan::one_shard).
//
// Agents send the usual chunks. Here they are frames of one push or one answer. A push is applied
// when its last chunk has arrived. Until then its chunks are stored in memory of that agent, so
// they occupy no receive buffers. If agents push at the same time, the first complete push makes
// the first step.
//
// A step, and the copy for a snapshot, is one turn of the engine. That is acceptable because
// tensors are layers, not whole models.
#pragma once

#include <memory>
#include <vector>

#include "server/parameter_server/parameter_tensor.h"

namespace gradbus {

class WholeParameters final : public ParameterTensor {
 public:
  static Result<std::unique_ptr<ShardTensor>> create(const ShardPlan& plan, Transport& transport);

  size_t answers_max() const override { return chunks_stored() * frames_.chunks(); }
  uint32_t chunk_of(const FrameHeader&) const override { return kAll; }
  void on_sent(const ShardAnswer& answer) override;
  Slice slice(const ShardAnswer& answer) const override;
  FrameHeader frame(const ShardAnswer& answer) const override;

 protected:
  Status check_piece(uint32_t agent, const FrameHeader& header) const override;
  Result<bool> collect(uint32_t agent, const FrameHeader& header,
                       std::span<const std::byte> payload) override;
  bool collect_again(uint32_t agent, const FrameHeader& header) override;
  void forget_collected(uint32_t agent, uint32_t chunk) override;
  std::span<const float> values_of(const Push& push) override;
  void give(uint32_t agent, uint32_t chunk, uint32_t staleness,
            std::vector<ShardAnswer>& answers) override;

 private:
  static constexpr uint32_t kAll = 0;  // the only chunk
  struct Agent {
    uint32_t here = 0;    // chunks of its push that have arrived
    uint32_t source = 0;  // their header field `source`
    uint32_t unsent = 0;  // chunks of its answer that the transport still has
    uint32_t buffer = 0;  // buffer of that answer
  };
  WholeParameters(const ShardPlan& plan, Transport& transport);
  Status open_pushes();
  std::span<float> pushed(uint32_t agent) const;
  uint64_t frame_bytes(uint32_t index) const {
    return frames_.range(index).elements * sizeof(float);
  }
  size_t here(uint32_t agent, uint32_t frame) const {
    return size_t{agent} * frames_.chunks() + frame;
  }

  const ChunkPlan frames_;      // the division used by the agents
  std::vector<Agent> senders_;  // by agent
  std::vector<bool> here_;      // by agent and chunk of its push
  StagingMemory pushes_;        // by agent
};

}  // namespace gradbus
