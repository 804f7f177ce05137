#include "common/errors.h"
#include "compression/random.h"
#include "data_plane/second_encoding.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

class OwnerReduce final : public CompressedPartition {
 public:
  explicit OwnerReduce(PartitionPlan partition)
      : CompressedPartition(std::move(partition)),
        codec_(make_codec(plan().spec, plan().shape)),
        owner_(plan().owner()),
        sum_codec_(second_codec(plan().spec, plan().shape, plan().agents)),
        sum_error_feedback_(second_error_feedback(plan().spec, plan().agents),
                            owns() ? plan().count : 0) {
    const size_t count = plan().count;
    add_stage(
        blocks_stage(plan(), CollectiveKind::kGather, owner_, codec_->payload_bytes_max(count)));
    add_stage(
        blocks_stage(plan(), CollectiveKind::kAllGather, 0, sum_codec_->payload_bytes_max(count)));
  }

  std::span<const uint64_t> encode(uint64_t round) override {
    round_ = round;
    const EncodeInput input =
        error_feedback().compensate(first_rank_buffer(), own_seed(round), codec_round(round));
    const size_t bytes = codec_->encode(input, own_block(0));
    error_feedback().update(*codec_, own_block(0).first(bytes));
    return lengths(bytes);
  }

  Result<std::span<const uint64_t>> advance(size_t stage) override {
    return stage == 0 ? sum() : take();
  }

 private:
  bool owns() const { return plan().agent_index == owner_; }
  std::span<float> codec_momentum() override { return codec_->momentum(); }
  std::span<float> owner_residual() override { return sum_error_feedback_.residual(); }

  // The owner's block goes to all agents; the other blocks are empty.
  Result<std::span<const uint64_t>> sum() {
    if (!owns()) return lengths(0);
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check_payload(*codec_, block(0, agent), plan().count, agent));
    codec_->decode(block(0, 0), 1, first_rank_buffer());
    for (uint32_t agent = 1; agent < plan().agents; ++agent)
      codec_->accumulate(block(0, agent), 1, first_rank_buffer());
    const uint64_t seed = mix_u64(own_seed(round_));
    return lengths(sum_codec_->encode(
        sum_error_feedback_.compensate(first_rank_buffer(), seed, codec_round(round_)),
        own_block(1)));
  }

  Result<std::span<const uint64_t>> take() {
    const std::span<const std::byte> payload = block(1, owner_);
    GRADBUS_RETURN_IF_ERROR(check_payload(*sum_codec_, payload, plan().count, owner_));
    sum_codec_->decode(payload, plan().scale, first_rank_buffer());
    publish();
    return std::span<const uint64_t>();
  }

  std::unique_ptr<Codec> codec_;
  const uint32_t owner_;
  std::unique_ptr<Codec> sum_codec_;
  ErrorFeedback sum_error_feedback_;
  uint64_t round_ = 0;
};

}  // namespace

std::unique_ptr<CompressedPartition> make_owner_reduce(PartitionPlan plan) {
  return std::make_unique<OwnerReduce>(std::move(plan));
}

}  // namespace gradbus
