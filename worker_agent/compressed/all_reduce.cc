#include "common/errors.h"
#include "compression/random.h"
#include "worker_agent/compressed/partitions.h"

namespace gradbus {
namespace {

class AllReduce final : public CompressedPartition {
 public:
  explicit AllReduce(PartitionPlan partition)
      : CompressedPartition(std::move(partition)),
        codec_(plan().spec.codec->make_linear(plan().spec.options, plan().shape)) {
    for (Stage& stage : vector_stages(plan(), *codec_)) add_stage(std::move(stage));
  }

  std::span<const uint64_t> encode(uint64_t round) override {
    input_ = error_feedback().compensate(first_rank_buffer(), own_seed(round), codec_round(round));
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
    codec_->finish(input_, seed_, plan().agents, vector(stage), plan().scale, first_rank_buffer());
    error_feedback().update(*codec_);
    publish();
    return std::span<const uint64_t>();
  }

 private:
  std::unique_ptr<LinearCodec> codec_;
  EncodeInput input_;
  uint64_t seed_ = 0;
};

}  // namespace

std::unique_ptr<CompressedPartition> make_all_reduce(PartitionPlan plan) {
  return std::make_unique<AllReduce>(std::move(plan));
}

}  // namespace gradbus
