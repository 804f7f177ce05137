#include "worker_agent/compressed/unit.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/check.h"
#include "common/errors.h"
#include "compression/kernels/sums.h"
#include "worker_agent/compressed/units.h"

namespace gradbus {

CompressedUnit::CompressedUnit(UnitPlan plan)
    : plan_(std::move(plan)),
      memory_(plan_.areas.empty() ? MemoryOptions() : memory_options(plan_.spec, plan_.agents),
              plan_.count),
      lengths_(plan_.agents) {}

void CompressedUnit::add_stage(Stage stage) {
  stages_.push_back(std::move(stage));
  attached_.emplace_back();
}

void CompressedUnit::attach(size_t stage, Exchange* exchange, std::span<std::byte> memory) {
  GRADBUS_CHECK(memory.size() == stages_[stage].bytes);
  attached_[stage] = {exchange, memory};
}

std::span<std::byte> CompressedUnit::block_memory(size_t stage, uint32_t index) const {
  return attached_[stage].memory.subspan(index * stages_[stage].stride, stages_[stage].stride);
}

std::span<std::byte> CompressedUnit::own_block(size_t stage) const {
  return block_memory(stage, plan_.agent_index);
}

std::span<const std::byte> CompressedUnit::received(size_t stage, uint32_t index,
                                                    uint32_t from) const {
  if (from == plan_.agent_index) return block_memory(stage, index).first(lengths_[from]);
  return attached_[stage].exchange->block(index);
}

std::span<std::byte> CompressedUnit::vector(size_t stage) const {
  const CollectivePlan& plan = stages_[stage].plan;
  return attached_[stage].memory.first(plan.count * dtype_bytes(plan.dtype));
}

std::span<const std::byte> CompressedUnit::block(size_t stage, uint32_t agent) const {
  return received(stage, agent, agent);
}

std::span<const uint64_t> CompressedUnit::lengths(uint64_t own_bytes) {
  lengths_[plan_.agent_index] = own_bytes;
  return lengths_;
}

uint64_t CompressedUnit::shared_seed(uint64_t round) const {
  return unit_seed(plan_.tensor_seed, plan_.index, round);
}

uint64_t CompressedUnit::own_seed(uint64_t round) const {
  return peer_seed(shared_seed(round), plan_.agent_index);
}

std::span<const uint64_t> CompressedUnit::start(uint64_t round, PullKind pull) {
  pull_ = pull;
  const bool brings_gradient = pull == PullKind::kNone && !(plan_.parameters && round == 1);
  if (!brings_gradient) return encode(round);
  for (size_t i = 0; i < carried_.size(); ++i) plan_.areas[0][i] += carried_[i];
  carried_.clear();
  return encode(round);
}

std::span<float> CompressedUnit::part(MemoryPart part) {
  const std::span<float> kept = memory_.part(part);
  return kept.empty() && part == MemoryPart::kMomentum ? codec_momentum() : kept;
}

Status CompressedUnit::read_memory(MemoryPart which) {
  for (float* const area : plan_.areas) std::fill_n(area, plan_.count, 0.0F);
  const auto add = [&](std::span<const float> kept) {
    for (size_t i = 0; i < kept.size(); ++i) plan_.areas[0][i] += kept[i];
  };
  add(part(which));
  if (which == MemoryPart::kMomentum) return {};
  add(owner_residual());
  add(carried_);
  return {};
}

Status CompressedUnit::write_memory(MemoryPart which) {
  const std::span<float> kept = part(which);
  std::copy_n(plan_.areas[0], kept.size(), kept.data());
  if (which == MemoryPart::kMomentum) return {};
  std::ranges::fill(owner_residual(), 0.0F);
  if (kept.empty()) carried_.assign(plan_.areas[0], plan_.areas[0] + plan_.count);
  return {};
}

Status CompressedUnit::scale_memory(float factor) {
  memory_.rescale(factor);
  for (float& value : owner_residual()) value *= factor;
  return {};
}

void CompressedUnit::take_memory(CompressedUnit& from, uint64_t first, uint64_t here,
                                 uint64_t elements) {
  const auto take = [&](std::span<const float> old, std::span<float> into) {
    if (!old.empty() && !into.empty())
      std::ranges::copy(old.subspan(first, elements), into.begin() + static_cast<ptrdiff_t>(here));
  };
  for (const MemoryPart which : {MemoryPart::kResidual, MemoryPart::kMomentum})
    take(from.part(which), part(which));
  if (!from.carried_.empty()) carried_.resize(plan_.count);
  take(from.carried_, carried_);
}

double CompressedUnit::residual_norm() {
  const std::span<const float> kept = memory_.residual();
  return std::sqrt(dot_product(kept.data(), kept.data(), kept.size()));
}

void CompressedUnit::publish() const {
  for (float* const area : std::span(plan_.areas).subspan(1))
    std::memcpy(area, plan_.areas[0], plan_.count * sizeof(float));
}

Status check_payload(const Codec& codec, std::span<const std::byte> payload, size_t count,
                     uint32_t agent) {
  const Status status = codec.check(payload, count);
  return status.ok() ? status : status.with_context("agent " + std::to_string(agent));
}

std::unique_ptr<CompressedUnit> make_unit(UnitPlan plan) {
  switch (plan.communicator) {
    case Communicator::kAllReduce:
      return is_linear(plan.spec) ? make_summed_unit(std::move(plan))
                                  : make_merged_unit(std::move(plan));
    case Communicator::kPs:
      if (plan.parameters) return make_held_unit(std::move(plan));
      return plan.shards > 0 ? make_pushed_unit(std::move(plan)) : make_owned_unit(std::move(plan));
    default: return make_gathered_unit(std::move(plan));
  }
}

}  // namespace gradbus
