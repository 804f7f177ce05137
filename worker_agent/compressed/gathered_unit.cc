#include "common/errors.h"
#include "compression/random.h"
#include "worker_agent/compressed/units.h"

namespace gradbus {
namespace {

class GatheredUnit final : public CompressedUnit {
 public:
  explicit GatheredUnit(UnitPlan unit)
      : CompressedUnit(std::move(unit)), codec_(make_codec(plan().spec, plan().shape)) {
    add_stage(blocks_stage(plan(), CollectiveKind::kAllGather, 0,
                           codec_->payload_bytes_max(plan().count)));
  }

  std::span<const uint64_t> encode(uint64_t round) override {
    const EncodeInput input = memory().compensate(first_area(), own_seed(round), round);
    const size_t bytes = codec_->encode(input, own_block(0));
    memory().update(*codec_, own_block(0).first(bytes));
    return lengths(bytes);
  }

  Result<std::span<const uint64_t>> advance(size_t) override {
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check_payload(*codec_, block(0, agent), plan().count, agent));
    codec_->decode(block(0, 0), plan().scale, first_area());
    for (uint32_t agent = 1; agent < plan().agents; ++agent)
      codec_->accumulate(block(0, agent), plan().scale, first_area());
    publish();
    return std::span<const uint64_t>();
  }

 private:
  std::span<float> codec_momentum() override { return codec_->momentum(); }

  std::unique_ptr<Codec> codec_;
};

}  // namespace

std::unique_ptr<CompressedUnit> make_gathered_unit(UnitPlan plan) {
  return std::make_unique<GatheredUnit>(std::move(plan));
}

}  // namespace gradbus
