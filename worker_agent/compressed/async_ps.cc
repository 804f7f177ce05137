#include <algorithm>
#include <cstring>

#include "common/errors.h"
#include "common/large_vector.h"
#include "data_plane/collectives/payload_push_pull.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

// The view contains this agent's parameters, bit for bit equal to the shard's view of them
// (server/parameter_server/coded_parameters.h). Ranks may write to their rank buffers, so the view
// is stored separately. Rounds that read other parts of the shard's state do not change it.
class AsyncPs final : public CompressedPartition {
 public:
  explicit AsyncPs(PartitionPlan partition)
      : CompressedPartition(std::move(partition)),
        codec_(make_codec(plan().spec, plan().shape)),
        view_(plan().count) {
    add_stage(shard_stage(
        plan(), std::max(codec_->payload_bytes_max(plan().count), plan().count * sizeof(float))));
  }

  // The first push contains the parameters themselves, as does a write of the shard's state: agent
  // 0's values are used for all. A pull pushes nothing.
  std::span<const uint64_t> encode(uint64_t round) override {
    const std::span<std::byte> push = block_memory(0, PayloadPushPull::kPushBlock);
    const bool dense = round == 1 || ps_request() == PsRequest::kWrite;
    if (dense && plan().agent_index == 0) {
      const std::span<const std::byte> brought = std::as_bytes(first_rank_buffer());
      std::ranges::copy(brought, push.begin());
      return lengths(brought.size());
    }
    if (dense || ps_request() != PsRequest::kNone) return lengths(0);
    const EncodeInput input =
        error_feedback().compensate(first_rank_buffer(), own_seed(round), codec_round(round));
    const size_t bytes = codec_->encode(input, push);
    error_feedback().update(*codec_, push.first(bytes));
    return lengths(bytes);
  }

  Result<std::span<const uint64_t>> advance(size_t) override {
    const CollectivePlan& to = stages().front().plan;
    const uint32_t shard = to.peer_of_shard(to.root) - to.agents;
    const std::span<const std::byte> answer =
        received(0, PayloadPushPull::kAnswerBlock, plan().agents + shard);
    const bool parameters = ps_request() != PsRequest::kRead;
    if (const Status status = parameters ? take(answer) : take_dense(answer, first_rank_buffer());
        !status.ok())
      return status.with_context("shard " + std::to_string(shard));
    if (parameters) std::ranges::copy(view_, first_rank_buffer().begin());
    publish();
    return std::span<const uint64_t>();
  }

 private:
  Status take(std::span<const std::byte> answer) {
    if (came_dense(0)) return take_dense(answer, view_);
    GRADBUS_RETURN_IF_ERROR(codec_->check(answer, plan().count));
    codec_->accumulate(answer, 1, view_);
    return {};
  }

  Status take_dense(std::span<const std::byte> answer, std::span<float> into) const {
    if (!came_dense(0)) return error("D611", "a payload instead of the requested elements");
    if (answer.size() != into.size_bytes())
      return error("D611", "elements of " + std::to_string(answer.size()) + " bytes, expected " +
                               std::to_string(into.size_bytes()));
    std::memcpy(into.data(), answer.data(), answer.size());
    return {};
  }

  std::unique_ptr<Codec> codec_;
  LargeVector<float> view_;
};

}  // namespace

std::unique_ptr<CompressedPartition> make_async_ps(PartitionPlan plan) {
  return std::make_unique<AsyncPs>(std::move(plan));
}

}  // namespace gradbus
