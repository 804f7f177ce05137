#include "common/errors.h"
#include "compression/random.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

class AllGather final : public CompressedPartition {
 public:
  explicit AllGather(PartitionPlan partition)
      : CompressedPartition(std::move(partition)), codec_(make_codec(plan().spec, plan().shape)) {
    add_stage(blocks_stage(plan(), CollectiveKind::kAllGather, 0,
                           codec_->payload_bytes_max(plan().count)));
  }

  std::span<const uint64_t> encode(uint64_t round) override {
    const EncodeInput input =
        error_feedback().compensate(first_rank_buffer(), own_seed(round), codec_round(round));
    const size_t bytes = codec_->encode(input, own_block(0));
    error_feedback().update(*codec_, own_block(0).first(bytes));
    return lengths(bytes);
  }

  Result<std::span<const uint64_t>> advance(size_t) override {
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check_payload(*codec_, block(0, agent), plan().count, agent));
    codec_->decode(block(0, 0), plan().scale, first_rank_buffer());
    for (uint32_t agent = 1; agent < plan().agents; ++agent)
      codec_->accumulate(block(0, agent), plan().scale, first_rank_buffer());
    publish();
    return std::span<const uint64_t>();
  }

 private:
  std::span<float> codec_momentum() override { return codec_->momentum(); }

  std::unique_ptr<Codec> codec_;
};

}  // namespace

std::unique_ptr<CompressedPartition> make_all_gather(PartitionPlan plan) {
  return std::make_unique<AllGather>(std::move(plan));
}

}  // namespace gradbus
