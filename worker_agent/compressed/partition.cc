#include "worker_agent/compressed/partition.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "common/check.h"
#include "common/errors.h"
#include "compression/kernels/vector/sums.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {

CompressedPartition::CompressedPartition(PartitionPlan plan)
    : plan_(std::move(plan)),
      error_feedback_(plan_.rank_buffers.empty() ? ErrorFeedbackOptions()
                                                 : error_feedback_options(plan_.spec, plan_.agents),
                      plan_.count),
      lengths_(plan_.agents) {}

void CompressedPartition::add_stage(Stage stage) {
  stages_.push_back(std::move(stage));
  attached_.emplace_back();
}

void CompressedPartition::attach(size_t stage, CollectiveOperation* operation,
                                 std::span<std::byte> memory) {
  GRADBUS_CHECK(memory.size() == stages_[stage].bytes);
  attached_[stage] = {operation, memory};
}

std::span<std::byte> CompressedPartition::block_memory(size_t stage, uint32_t index) const {
  return attached_[stage].memory.subspan(index * stages_[stage].stride, stages_[stage].stride);
}

std::span<std::byte> CompressedPartition::own_block(size_t stage) const {
  return block_memory(stage, plan_.agent_index);
}

std::span<const std::byte> CompressedPartition::received(size_t stage, uint32_t index,
                                                         uint32_t from) const {
  if (from == plan_.agent_index) return block_memory(stage, index).first(lengths_[from]);
  return attached_[stage].operation->block(index);
}

std::span<std::byte> CompressedPartition::vector(size_t stage) const {
  const CollectivePlan& plan = stages_[stage].plan;
  return attached_[stage].memory.first(plan.count * dtype_bytes(plan.dtype));
}

std::span<const std::byte> CompressedPartition::block(size_t stage, uint32_t agent) const {
  return received(stage, agent, agent);
}

std::span<const uint64_t> CompressedPartition::lengths(uint64_t own_bytes) {
  lengths_[plan_.agent_index] = own_bytes;
  return lengths_;
}

uint64_t CompressedPartition::shared_seed(uint64_t round) const {
  return partition_seed(plan_.tensor_seed, plan_.index, round);
}

uint64_t CompressedPartition::own_seed(uint64_t round) const {
  return peer_seed(shared_seed(round), plan_.agent_index);
}

std::span<const uint64_t> CompressedPartition::start(uint64_t round, PsRequest pull) {
  ps_request_ = pull;
  const bool brings_gradient = pull == PsRequest::kNone && !(plan_.parameters && round == 1);
  if (!brings_gradient) return encode(round);
  for (size_t i = 0; i < carried_.size(); ++i) plan_.rank_buffers[0][i] += carried_[i];
  carried_.clear();
  return encode(round);
}

std::span<float> CompressedPartition::part(ResidualStatePart part) {
  const std::span<float> kept = error_feedback_.part(part);
  return kept.empty() && part == ResidualStatePart::kMomentum ? codec_momentum() : kept;
}

Status CompressedPartition::read_residual_state(ResidualStatePart which) {
  for (float* const rank_buffer : plan_.rank_buffers) std::fill_n(rank_buffer, plan_.count, 0.0F);
  const auto add = [&](std::span<const float> kept) {
    for (size_t i = 0; i < kept.size(); ++i) plan_.rank_buffers[0][i] += kept[i];
  };
  add(part(which));
  if (which == ResidualStatePart::kMomentum) return {};
  add(owner_residual());
  add(carried_);
  return {};
}

Status CompressedPartition::write_residual_state(ResidualStatePart which) {
  const std::span<float> kept = part(which);
  std::copy_n(plan_.rank_buffers[0], kept.size(), kept.data());
  if (which == ResidualStatePart::kMomentum) return {};
  std::ranges::fill(owner_residual(), 0.0F);
  if (kept.empty()) carried_.assign(plan_.rank_buffers[0], plan_.rank_buffers[0] + plan_.count);
  return {};
}

Status CompressedPartition::scale_residual_state(float factor) {
  error_feedback_.rescale(factor);
  for (float& value : owner_residual()) value *= factor;
  return {};
}

void CompressedPartition::take_residual_state(CompressedPartition& from, uint64_t first,
                                              uint64_t here, uint64_t elements) {
  const auto take = [&](std::span<const float> old, std::span<float> into) {
    if (!old.empty() && !into.empty())
      std::ranges::copy(old.subspan(first, elements), into.begin() + static_cast<ptrdiff_t>(here));
  };
  for (const ResidualStatePart which : {ResidualStatePart::kResidual, ResidualStatePart::kMomentum})
    take(from.part(which), part(which));
  if (!from.carried_.empty()) carried_.resize(plan_.count);
  take(from.carried_, carried_);
}

double CompressedPartition::residual_norm() {
  const std::span<const float> kept = error_feedback_.residual();
  return std::sqrt(dot_product(kept.data(), kept.data(), kept.size()));
}

void CompressedPartition::publish() const {
  for (float* const rank_buffer : std::span(plan_.rank_buffers).subspan(1))
    std::memcpy(rank_buffer, plan_.rank_buffers[0], plan_.count * sizeof(float));
}

Status check_payload(const Codec& codec, std::span<const std::byte> payload, size_t count,
                     uint32_t agent) {
  const Status status = codec.check(payload, count);
  return status.ok() ? status : status.with_context("agent " + std::to_string(agent));
}

std::unique_ptr<CompressedPartition> make_partition(PartitionPlan plan) {
  switch (plan.communicator) {
    case Communicator::kAllReduce:
      return is_linear(plan.spec) ? make_all_reduce(std::move(plan))
                                  : make_sparse_all_reduce(std::move(plan));
    case Communicator::kPs:
      if (plan.parameters) return make_async_ps(std::move(plan));
      return plan.shards > 0 ? make_ps_sync(std::move(plan)) : make_owner_reduce(std::move(plan));
    default: return make_all_gather(std::move(plan));
  }
}

}  // namespace gradbus
