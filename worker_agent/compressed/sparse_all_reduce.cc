// Sparse all-reduce. Each agent owns a range of elements. It receives what every agent has selected
// of it, adds that up, and sends the union to all, exactly (the split all-gather of SparCML,
// Renggli et al. 2019). If agents select the same elements, this sends fewer bytes than an
// all-gather of all payloads.
#include <algorithm>

#include "common/errors.h"
#include "compression/codecs/sparse_payload.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

class SparseAllReduce final : public CompressedPartition {
 public:
  explicit SparseAllReduce(PartitionPlan partition)
      : CompressedPartition(std::move(partition)),
        codec_(make_codec(plan().spec, plan().shape)),
        type_(wire_type(plan().spec.options.text("values"))),
        slice_elements_((plan().count + plan().agents - 1) / plan().agents),
        payload_(codec_->payload_bytes_max(plan().count)),
        index_memory_(new uint32_t[plan().count]),
        value_memory_(new float[plan().count]),
        indices_(index_memory_.get(), plan().count),
        values_(value_memory_.get(), plan().count) {
    const uint64_t slice_bytes = codec_->payload_bytes_max(plan().count);
    const uint64_t union_bytes = sparse_bytes_max(WireType::kF32, slice_elements_, slice_elements_);
    add_stage(blocks_stage(plan(), CollectiveKind::kAllToAll, 0, slice_bytes));
    add_stage(blocks_stage(plan(), CollectiveKind::kAllGather, 0, union_bytes));
  }

 private:
  // The slice of a range of elements.
  struct Slice {
    size_t first = 0;
    size_t count = 0;
  };
  Slice slice_of(uint32_t agent) const {
    const size_t first = std::min(agent * slice_elements_, plan().count);
    return {first, std::min(slice_elements_, plan().count - first)};
  }
  Slice own_slice() const { return slice_of(plan().agent_index); }
  CodecId id() const { return plan().spec.codec->id; }
  uint32_t block_index(uint32_t from, uint32_t to) const { return from * plan().agents + to; }

  std::span<const uint64_t> encode(uint64_t round) override {
    const EncodeInput input =
        error_feedback().compensate(first_rank_buffer(), own_seed(round), round);
    const size_t bytes = codec_->encode(input, payload_);
    const std::span<const std::byte> payload = std::span(payload_).first(bytes);
    error_feedback().update(*codec_, payload);
    const size_t entries = read_sparse(payload, indices_, values_);
    size_t at = 0;
    for (uint32_t agent = 0; agent < plan().agents; ++agent) at = cut(agent, at, entries);
    return all_lengths();
  }

  // Writes the entries of the agent's slice, which begin at `at`. Returns where they end.
  size_t cut(uint32_t agent, size_t at, size_t entries) {
    const Slice slice = slice_of(agent);
    size_t end = at;
    for (; end < entries && indices_[end] < slice.first + slice.count; ++end)
      indices_[end] -= static_cast<uint32_t>(slice.first);
    const Selection selection{.indices = indices_.subspan(at, end - at),
                              .values = values_.subspan(at, end - at)};
    const uint32_t index = block_index(plan().agent_index, agent);
    set_length(agent, encode_sparse(id(), type_, slice.count, selection, block_memory(0, index)));
    return end;
  }

  Result<std::span<const uint64_t>> advance(size_t stage) override {
    return stage == 0 ? merge() : take();
  }

  Result<std::span<const uint64_t>> merge() {
    const Slice slice = own_slice();
    const std::span<float> sum = first_rank_buffer().subspan(slice.first, slice.count);
    std::ranges::fill(sum, 0.0F);
    for (uint32_t agent = 0; agent < plan().agents; ++agent) {
      const std::span<const std::byte> payload =
          received(0, block_index(agent, plan().agent_index), agent);
      GRADBUS_RETURN_IF_ERROR(check_slice(payload, type_, slice.count, agent));
      accumulate_sparse(payload, 1, sum);
    }
    size_t entries = 0;
    for (size_t i = 0; i < sum.size(); ++i) {
      indices_[entries] = static_cast<uint32_t>(i);
      values_[entries] = sum[i];
      entries += sum[i] != 0 ? 1 : 0;
    }
    const Selection selection{.indices = indices_.first(entries), .values = values_.first(entries)};
    return lengths(encode_sparse(id(), WireType::kF32, slice.count, selection, own_block(1)));
  }

  Result<std::span<const uint64_t>> take() {
    std::ranges::fill(first_rank_buffer(), 0.0F);
    for (uint32_t agent = 0; agent < plan().agents; ++agent) {
      const Slice slice = slice_of(agent);
      GRADBUS_RETURN_IF_ERROR(check_slice(block(1, agent), WireType::kF32, slice.count, agent));
      accumulate_sparse(block(1, agent), plan().scale,
                        first_rank_buffer().subspan(slice.first, slice.count));
    }
    publish();
    return std::span<const uint64_t>();
  }

  Status check_slice(std::span<const std::byte> payload, WireType type, size_t count,
                     uint32_t agent) const {
    const Status status = check_sparse(payload, id(), type, count, 0, count);
    return status.ok() ? status : status.with_context("agent " + std::to_string(agent));
  }

  const std::unique_ptr<Codec> codec_;
  const WireType type_;
  const size_t slice_elements_;
  std::vector<std::byte> payload_;
  // indices of the current entries; untouched pages cost nothing
  const std::unique_ptr<uint32_t[]> index_memory_;
  const std::unique_ptr<float[]> value_memory_;
  const std::span<uint32_t> indices_;
  const std::span<float> values_;
};

}  // namespace

std::unique_ptr<CompressedPartition> make_sparse_all_reduce(PartitionPlan plan) {
  return std::make_unique<SparseAllReduce>(std::move(plan));
}

}  // namespace gradbus
