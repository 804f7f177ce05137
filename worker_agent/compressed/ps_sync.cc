#include "data_plane/collectives/payload_push_pull.h"
#include "data_plane/second_encoding.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

class PsSync final : public CompressedPartition {
 public:
  explicit PsSync(PartitionPlan partition)
      : CompressedPartition(std::move(partition)),
        codec_(make_codec(plan().spec, plan().shape)),
        sum_codec_(second_codec(plan().spec, plan().shape, plan().agents)) {
    add_stage(shard_stage(plan(), std::max(codec_->payload_bytes_max(plan().count),
                                           sum_codec_->payload_bytes_max(plan().count))));
  }

  std::span<const uint64_t> encode(uint64_t round) override {
    const std::span<std::byte> payload = block_memory(0, PayloadPushPull::kPushBlock);
    const EncodeInput input =
        error_feedback().compensate(first_rank_buffer(), own_seed(round), round);
    const size_t bytes = codec_->encode(input, payload);
    error_feedback().update(*codec_, payload.first(bytes));
    return lengths(bytes);
  }

  Result<std::span<const uint64_t>> advance(size_t) override {
    const CollectivePlan& to = stages().front().plan;
    const uint32_t shard = to.peer_of_shard(to.root) - to.agents;
    const std::span<const std::byte> payload =
        received(0, PayloadPushPull::kAnswerBlock, plan().agents + shard);
    if (const Status status = sum_codec_->check(payload, plan().count); !status.ok())
      return status.with_context("shard " + std::to_string(shard));
    sum_codec_->decode(payload, plan().scale, first_rank_buffer());
    publish();
    return std::span<const uint64_t>();
  }

 private:
  std::span<float> codec_momentum() override { return codec_->momentum(); }

  std::unique_ptr<Codec> codec_;
  std::unique_ptr<Codec> sum_codec_;
};

}  // namespace

std::unique_ptr<CompressedPartition> make_ps_sync(PartitionPlan plan) {
  return std::make_unique<PsSync>(std::move(plan));
}

}  // namespace gradbus
