#include "common/errors.h"
#include "compression/random.h"
#include "worker_agent/compressed/second_encoding.h"
#include "worker_agent/compressed/units.h"

namespace gradbus {
namespace {

class OwnedUnit final : public CompressedUnit {
 public:
  explicit OwnedUnit(UnitPlan unit)
      : CompressedUnit(std::move(unit)),
        codec_(make_codec(plan().spec, plan().shape)),
        owner_(plan().owner()),
        sum_codec_(second_codec(plan().spec, plan().shape)),
        sum_memory_(second_memory(plan().spec, plan().agents), owns() ? plan().count : 0) {
    const size_t count = plan().count;
    add_stage(
        blocks_stage(plan(), CollectiveKind::kGather, owner_, codec_->payload_bytes_max(count)));
    add_stage(
        blocks_stage(plan(), CollectiveKind::kAllGather, 0, sum_codec_->payload_bytes_max(count)));
  }

  std::span<const uint64_t> encode(uint64_t round) override {
    round_ = round;
    const EncodeInput input = memory().compensate(first_area(), own_seed(round), round);
    const size_t bytes = codec_->encode(input, own_block(0));
    memory().update(*codec_, own_block(0).first(bytes));
    return lengths(bytes);
  }

  Result<std::span<const uint64_t>> advance(size_t stage) override {
    return stage == 0 ? sum() : take();
  }

 private:
  bool owns() const { return plan().agent_index == owner_; }
  std::span<float> codec_momentum() override { return codec_->momentum(); }
  std::span<float> owner_residual() override { return sum_memory_.residual(); }

  // The owner's block goes to all agents; the other blocks are empty.
  Result<std::span<const uint64_t>> sum() {
    if (!owns()) return lengths(0);
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check_payload(*codec_, block(0, agent), plan().count, agent));
    codec_->decode(block(0, 0), 1, first_area());
    for (uint32_t agent = 1; agent < plan().agents; ++agent)
      codec_->accumulate(block(0, agent), 1, first_area());
    const uint64_t seed = mix_u64(own_seed(round_));
    return lengths(
        sum_codec_->encode(sum_memory_.compensate(first_area(), seed, round_), own_block(1)));
  }

  Result<std::span<const uint64_t>> take() {
    const std::span<const std::byte> payload = block(1, owner_);
    GRADBUS_RETURN_IF_ERROR(check_payload(*sum_codec_, payload, plan().count, owner_));
    sum_codec_->decode(payload, plan().scale, first_area());
    publish();
    return std::span<const uint64_t>();
  }

  std::unique_ptr<Codec> codec_;
  const uint32_t owner_;
  std::unique_ptr<Codec> sum_codec_;
  Memory sum_memory_;
  uint64_t round_ = 0;
};

}  // namespace

std::unique_ptr<CompressedUnit> make_owned_unit(UnitPlan plan) {
  return std::make_unique<OwnedUnit>(std::move(plan));
}

}  // namespace gradbus
