#include "worker_agent/compressed/unit.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "common/check.h"
#include "common/errors.h"
#include "compression/random.h"
#include "proto/algorithms.h"

namespace gradbus {
namespace {

constexpr uint64_t kPayloadChunkBytes = 256 << 10;  // a payload is sent on while the next comes
constexpr uint64_t kAlignBytes = 128;

uint64_t round_up(uint64_t value, uint64_t to) { return (value + to - 1) / to * to; }

// At least two chunks per agent where they are worth a frame, so that all work at once.
uint64_t vector_chunk_elements(uint64_t elements, uint64_t element_bytes, uint32_t agents) {
  const uint64_t share = round_up((elements + 2 * agents - 1) / (2 * agents), 64);
  const uint64_t least = (16 << 10) / element_bytes;
  return std::clamp(share, least, kFramePayloadBytesMax / element_bytes);
}

CollectivePlan between_agents(const UnitPlan& unit) {
  CollectivePlan plan;
  plan.codec = unit.spec.codec->id;
  plan.agent_index = unit.agent_index;
  plan.agents = unit.agents;
  plan.agent_of_rank.resize(unit.agents);
  std::iota(plan.agent_of_rank.begin(), plan.agent_of_rank.end(), 0);
  return plan;
}

}  // namespace

CompressedUnit::CompressedUnit(UnitPlan plan) : plan_(std::move(plan)), lengths_(plan_.agents) {}

void CompressedUnit::add_blocks_stage(CollectiveKind kind, uint32_t root,
                                      uint64_t block_bytes_max) {
  Stage stage;
  stage.plan = between_agents(plan_);
  stage.plan.kind = kind;
  stage.plan.algorithm = Algorithm::kDirect;
  stage.plan.dtype = DType::kU8;
  stage.plan.op = ReduceOp::kNone;
  stage.plan.root = root;
  stage.plan.count = block_bytes_max;
  stage.plan.chunk_elements = std::min(block_bytes_max, kPayloadChunkBytes);
  stage.stride = round_up(block_bytes_max, kAlignBytes);
  stage.bytes = stage.stride * plan_.agents;
  GRADBUS_CHECK(fits(kind, stage.plan.algorithm));
  stages_.push_back(std::move(stage));
  attached_.emplace_back();
}

void CompressedUnit::add_vector_stage(DType dtype, uint64_t elements) {
  Stage stage;
  stage.plan = between_agents(plan_);
  stage.plan.algorithm = plan_.algorithm;
  stage.plan.dtype = dtype;
  stage.plan.count = elements;
  const uint64_t frame_elements = kFramePayloadBytesMax / dtype_bytes(dtype);
  const bool whole = plan_.algorithm == Algorithm::kRecursiveDoubling;
  if (whole && elements > frame_elements) stage.plan.algorithm = Algorithm::kRing;
  stage.plan.chunk_elements =
      stage.plan.algorithm == Algorithm::kRecursiveDoubling
          ? frame_elements
          : vector_chunk_elements(elements, dtype_bytes(dtype), plan_.agents);
  stage.stride = stage.bytes = round_up(elements * dtype_bytes(dtype), kAlignBytes);
  stages_.push_back(std::move(stage));
  attached_.emplace_back();
}

void CompressedUnit::attach(size_t stage, Exchange* exchange, std::span<std::byte> memory) {
  GRADBUS_CHECK(memory.size() == stages_[stage].bytes);
  attached_[stage] = {exchange, memory};
}

std::span<std::byte> CompressedUnit::own_block(size_t stage) const {
  return attached_[stage].memory.subspan(plan_.agent_index * stages_[stage].stride,
                                         stages_[stage].stride);
}

std::span<std::byte> CompressedUnit::vector(size_t stage) const {
  const CollectivePlan& plan = stages_[stage].plan;
  return attached_[stage].memory.first(plan.count * dtype_bytes(plan.dtype));
}

std::span<const std::byte> CompressedUnit::block(size_t stage, uint32_t agent) const {
  if (agent == plan_.agent_index) return own_block(stage).first(lengths_[agent]);
  return attached_[stage].exchange->block(agent);
}

std::span<const uint64_t> CompressedUnit::lengths(uint64_t own_bytes) {
  lengths_[plan_.agent_index] = own_bytes;
  return lengths_;
}

uint64_t CompressedUnit::shared_seed(uint64_t round) const {
  return mix_u64(mix_u64(plan_.tensor_seed + plan_.index) + round);
}

uint64_t CompressedUnit::own_seed(uint64_t round) const {
  return mix_u64(shared_seed(round) + 1 + plan_.agent_index);
}

void CompressedUnit::publish() const {
  for (float* const area : std::span(plan_.areas).subspan(1))
    std::memcpy(area, plan_.areas[0], plan_.count * sizeof(float));
}

namespace {

Status check_of(const Codec& codec, std::span<const std::byte> payload, size_t count,
                uint32_t agent) {
  const Status status = codec.check(payload, count);
  return status.ok() ? status : status.with_context("agent " + std::to_string(agent));
}

// ---- gathered

class GatheredUnit final : public CompressedUnit {
 public:
  explicit GatheredUnit(UnitPlan unit)
      : CompressedUnit(std::move(unit)),
        codec_(plan().spec.codec->make(plan().spec.options, plan().shape)),
        memory_(memory_options(plan().spec, plan().agents), plan().count) {
    add_blocks_stage(CollectiveKind::kAllGather, 0, codec_->payload_bytes_max(plan().count));
  }

  std::span<const uint64_t> start(uint64_t round) override {
    const EncodeInput input = memory_.compensate(first_area(), own_seed(round), round);
    const size_t bytes = codec_->encode(input, own_block(0));
    memory_.update(*codec_, own_block(0).first(bytes));
    return lengths(bytes);
  }

  Result<std::span<const uint64_t>> advance(size_t) override {
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check_of(*codec_, block(0, agent), plan().count, agent));
    codec_->decode(block(0, 0), plan().scale, first_area());
    for (uint32_t agent = 1; agent < plan().agents; ++agent)
      codec_->accumulate(block(0, agent), plan().scale, first_area());
    publish();
    return std::span<const uint64_t>();
  }

 private:
  std::unique_ptr<Codec> codec_;
  Memory memory_;
};

// ---- owned

// The owner keeps what its second encoding leaves out (two-way error feedback, as BytePS and
// MergeComp's parameter-server communicator do). Its memory never has momentum: that is the
// senders'.
MemoryOptions owner_memory(const UnitPlan& plan) {
  MemoryOptions options = memory_options(plan.spec, plan.agents);
  if (options.kind == MemoryKind::kDgc) options.kind = MemoryKind::kResidual;
  return options;
}

std::unique_ptr<Codec> owner_codec(const UnitPlan& plan) {
  const CodecRow& row = *plan.spec.codec;
  const CodecRow& owner = row.owner.empty() ? row : *find_codec(row.owner);
  return owner.make(plan.spec.options, plan.shape);
}

class OwnedUnit final : public CompressedUnit {
 public:
  explicit OwnedUnit(UnitPlan unit)
      : CompressedUnit(std::move(unit)),
        codec_(plan().spec.codec->make(plan().spec.options, plan().shape)),
        memory_(memory_options(plan().spec, plan().agents), plan().count),
        owner_(plan().index % plan().agents),
        sum_codec_(owner_codec(plan())),
        sum_memory_(owner_memory(plan()), owns() ? plan().count : 0) {
    const uint64_t bytes_max = codec_->payload_bytes_max(plan().count);
    add_blocks_stage(CollectiveKind::kGather, owner_, bytes_max);
    add_blocks_stage(CollectiveKind::kAllGather, 0, sum_codec_->payload_bytes_max(plan().count));
  }

  std::span<const uint64_t> start(uint64_t round) override {
    round_ = round;
    const EncodeInput input = memory_.compensate(first_area(), own_seed(round), round);
    const size_t bytes = codec_->encode(input, own_block(0));
    memory_.update(*codec_, own_block(0).first(bytes));
    return lengths(bytes);
  }

  Result<std::span<const uint64_t>> advance(size_t stage) override {
    return stage == 0 ? sum() : take();
  }

 private:
  bool owns() const { return plan().agent_index == owner_; }

  // The owner's block goes to all; the others' are empty.
  Result<std::span<const uint64_t>> sum() {
    if (!owns()) return lengths(0);
    for (uint32_t agent = 0; agent < plan().agents; ++agent)
      GRADBUS_RETURN_IF_ERROR(check_of(*codec_, block(0, agent), plan().count, agent));
    codec_->decode(block(0, 0), 1, first_area());
    for (uint32_t agent = 1; agent < plan().agents; ++agent)
      codec_->accumulate(block(0, agent), 1, first_area());
    const uint64_t seed = mix_u64(own_seed(round_));
    return lengths(
        sum_codec_->encode(sum_memory_.compensate(first_area(), seed, round_), own_block(1)));
  }

  Result<std::span<const uint64_t>> take() {
    const std::span<const std::byte> payload = block(1, owner_);
    GRADBUS_RETURN_IF_ERROR(check_of(*sum_codec_, payload, plan().count, owner_));
    sum_codec_->decode(payload, plan().scale, first_area());
    publish();
    return std::span<const uint64_t>();
  }

  std::unique_ptr<Codec> codec_;
  Memory memory_;
  const uint32_t owner_;
  std::unique_ptr<Codec> sum_codec_;
  Memory sum_memory_;
  uint64_t round_ = 0;
};

// ---- summed

class SummedUnit final : public CompressedUnit {
 public:
  explicit SummedUnit(UnitPlan unit)
      : CompressedUnit(std::move(unit)),
        codec_(plan().spec.codec->make_linear(plan().spec.options, plan().shape)),
        memory_(memory_options(plan().spec, plan().agents), plan().count) {
    for (uint32_t round = 0; round < codec_->rounds(); ++round)
      add_vector_stage(codec_->dtype(round), codec_->vector_elements(round));
  }

  std::span<const uint64_t> start(uint64_t round) override {
    input_ = memory_.compensate(first_area(), own_seed(round), round);
    seed_ = shared_seed(round);
    codec_->project(0, input_, seed_, {}, vector(0));
    return {};
  }

  Result<std::span<const uint64_t>> advance(size_t stage) override {
    if (stage + 1 < stages().size()) {
      codec_->project(static_cast<uint32_t>(stage) + 1, input_, seed_, vector(stage),
                      vector(stage + 1));
      return std::span<const uint64_t>();
    }
    codec_->finish(input_, seed_, plan().agents, vector(stage), plan().scale, first_area());
    publish();
    return std::span<const uint64_t>();
  }

 private:
  std::unique_ptr<LinearCodec> codec_;
  Memory memory_;
  EncodeInput input_;
  uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<CompressedUnit> make_unit(UnitPlan plan) {
  switch (plan.communicator) {
    case Communicator::kAllReduce: return std::make_unique<SummedUnit>(std::move(plan));
    case Communicator::kPs: return std::make_unique<OwnedUnit>(std::move(plan));
    default: return std::make_unique<GatheredUnit>(std::move(plan));
  }
}

}  // namespace gradbus
