#include "worker_agent/compressed/device_linear.h"

#include <algorithm>
#include <limits>

#include "common/check.h"
#include "compression/codecs/blocktopk.h"
#include "compression/codecs/powersgd.h"

namespace gradbus {
namespace {

std::span<const float> floats(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const float*>(bytes.data()), bytes.size() / sizeof(float)};
}

float* floats_at(std::span<std::byte> parts, size_t offset) {
  return reinterpret_cast<float*>(parts.data() + offset);
}

class LowRankOnDevice final : public DeviceLinear {
 public:
  LowRankOnDevice(std::unique_ptr<LinearCodec> codec, PowerSgd& powersgd)
      : DeviceLinear(std::move(codec)),
        powersgd_(powersgd),
        p_{vector_bytes(1), vector_bytes(0)},
        last_q_{p_.offset + p_.bytes, vector_bytes(1)} {}

  size_t parts_bytes() const override { return last_q_.offset + last_q_.bytes; }

  Part begin(uint64_t shared_seed, std::span<std::byte> parts) override {
    powersgd_.renew_q(shared_seed);
    return pack_q(first_q(), parts);
  }

  std::optional<Part> go_on(std::span<const std::byte> sum, std::span<std::byte> parts,
                            std::span<std::byte> vector) override {
    if (!powersgd_.take_p(floats(sum))) {
      std::ranges::fill(std::span(floats_at(vector, 0), vector.size() / sizeof(float)),
                        std::numeric_limits<float>::quiet_NaN());
      return std::nullopt;
    }
    std::ranges::copy(powersgd_.p(), floats_at(parts, p_.offset));
    return p_;
  }

  // Where P was not finite the device's is of another partition, and Q all NaN.
  Part end(std::span<const std::byte> sum, uint32_t agents, std::span<std::byte> parts) override {
    powersgd_.take_q(floats(sum), agents);
    pack_q(last_q_, parts);
    return {p_.offset, p_.bytes + last_q_.bytes};
  }

  bool reads_sum() const override { return false; }

  CudaResult project(const CudaTable& cuda, CudaStream* stream, uint32_t round,
                     const Place& place) const override {
    CudaLowRank input =
        this->input(place, round == 0 ? CudaRankPart::kRows : CudaRankPart::kColumns);
    input.out = static_cast<float*>(place.vector);
    return cuda.low_rank(stream, &input);
  }

  CudaResult finish(const CudaTable& cuda, CudaStream* stream, const Place& place, float scale,
                    uint32_t agents, float* values) const override {
    CudaLowRank input = this->input(place, CudaRankPart::kFinish);
    input.factor = scale * static_cast<float>(agents);
    input.out = values;
    return cuda.low_rank(stream, &input);
  }

 private:
  Part first_q() const { return {0, vector_bytes(1)}; }

  Part pack_q(const Part& where, std::span<std::byte> parts) const {
    float* to = floats_at(parts, where.offset);
    for (size_t k = 0; k < powersgd_.rank(); ++k)
      to = std::copy_n(powersgd_.q().data() + k * powersgd_.stride(), powersgd_.columns(), to);
    return where;
  }

  CudaLowRank input(const Place& place, CudaRankPart part) const {
    const Part& q = part == CudaRankPart::kFinish ? last_q_ : first_q();
    CudaLowRank made{.partition = place.partition, .part = part};
    made.rows = static_cast<uint32_t>(powersgd_.rows());
    made.columns = static_cast<uint32_t>(powersgd_.columns());
    made.rank = static_cast<uint32_t>(powersgd_.rank());
    made.p = reinterpret_cast<const float*>(place.parts + p_.offset);
    made.q = reinterpret_cast<const float*>(place.parts + q.offset);
    return made;
  }

  PowerSgd& powersgd_;
  const Part p_;
  const Part last_q_;
};

class BlocksOnDevice final : public DeviceLinear {
 public:
  BlocksOnDevice(std::unique_ptr<LinearCodec> codec, BlockTopK& blocks)
      : DeviceLinear(std::move(codec)),
        blocks_(blocks),
        chosen_{0, blocks.chosen().size() * sizeof(uint32_t)},
        places_{chosen_.bytes, vector_bytes(0) / sizeof(float) * sizeof(uint32_t)} {}

  size_t parts_bytes() const override { return places_.offset + places_.bytes; }

  Part begin(uint64_t, std::span<std::byte>) override { return {}; }

  std::optional<Part> go_on(std::span<const std::byte> sum, std::span<std::byte> parts,
                            std::span<std::byte>) override {
    blocks_.choose(floats(sum));
    std::ranges::copy(blocks_.chosen(), words_at(parts, chosen_).data());
    return chosen_;
  }

  Part end(std::span<const std::byte>, uint32_t, std::span<std::byte> parts) override {
    const std::span<uint32_t> places = words_at(parts, places_);
    std::ranges::fill(places, 0);
    uint32_t place = 0;
    for (const uint32_t block : blocks_.chosen()) places[block] = ++place;
    return places_;
  }

  bool reads_sum() const override { return true; }

  CudaResult project(const CudaTable& cuda, CudaStream* stream, uint32_t round,
                     const Place& place) const override {
    CudaBlocks input =
        this->input(place, round == 0 ? CudaBlocksPart::kNorms : CudaBlocksPart::kGather);
    input.out = place.vector;
    return cuda.blocks(stream, &input);
  }

  CudaResult finish(const CudaTable& cuda, CudaStream* stream, const Place& place, float scale,
                    uint32_t, float* values) const override {
    CudaBlocks input = this->input(place, CudaBlocksPart::kFinish);
    input.sum = place.vector;
    input.out = values;
    input.scale = scale;
    input.finite = blocks_.finite() ? 1 : 0;
    return cuda.blocks(stream, &input);
  }

 private:
  static std::span<uint32_t> words_at(std::span<std::byte> parts, const Part& part) {
    return {reinterpret_cast<uint32_t*>(parts.data() + part.offset), part.bytes / sizeof(uint32_t)};
  }

  CudaBlocks input(const Place& place, CudaBlocksPart part) const {
    CudaBlocks made{.partition = place.partition, .part = part};
    made.block = static_cast<uint32_t>(blocks_.block());
    made.chosen = static_cast<uint32_t>(blocks_.chosen().size());
    made.dtype = static_cast<uint32_t>(blocks_.dtype(1));
    made.blocks = reinterpret_cast<const uint32_t*>(place.parts + chosen_.offset);
    made.places = reinterpret_cast<const uint32_t*>(place.parts + places_.offset);
    return made;
  }

  BlockTopK& blocks_;
  const Part chosen_;
  const Part places_;
};

}  // namespace

size_t DeviceLinear::vector_bytes(uint32_t round) const {
  return codec_->vector_elements(round) * dtype_bytes(codec_->dtype(round));
}

std::unique_ptr<DeviceLinear> make_device_linear(const CompressionSpec& spec,
                                                 const CodecShape& shape) {
  if (spec.codec->make_linear == nullptr) return nullptr;
  std::unique_ptr<LinearCodec> codec = spec.codec->make_linear(spec.options, shape);
  if (auto* powersgd = dynamic_cast<PowerSgd*>(codec.get()))
    return std::make_unique<LowRankOnDevice>(std::move(codec), *powersgd);
  if (auto* blocks = dynamic_cast<BlockTopK*>(codec.get()))
    return std::make_unique<BlocksOnDevice>(std::move(codec), *blocks);
  return nullptr;
}

}  // namespace gradbus
