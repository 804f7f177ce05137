// Mode ps:sync on a shard: a chunk is summed as its pushes come, and when every agent's is there
// all get the result. Nothing is kept between rounds.
//
// Two buffers a chunk: the sum being made, and the last result, which may still be on its way to a
// slow agent; that agent's next push cannot come before it has arrived, so no third is ever needed.
// The result stays until the next one is there: an agent may ask for it again (shard_tensor.h).
// Sums are made in the order of arrival.
#pragma once

#include "worker_agent/shard/shard_tensor.h"

namespace gradbus {

class SummedTensor final : public ShardTensor {
 public:
  static Result<std::unique_ptr<ShardTensor>> create(const ShardPlan& plan, Transport& transport);

 protected:
  void take(const Push& push, Nanos now, std::vector<ShardAnswer>& answers) override;
  void answer_again(uint32_t agent, uint32_t chunk, std::vector<ShardAnswer>& answers) override;

 private:
  static constexpr uint32_t kBuffers = 2;
  struct Sum {
    uint32_t arrived = 0;
    uint32_t buffer = 0;
    uint32_t last = kBuffers;  // of the last result; kBuffers: there is none
  };
  SummedTensor(const ShardPlan& plan, Transport& transport);
  void add(uint32_t chunk, const Sum& sum, std::span<const std::byte> payload);

  std::vector<Sum> sums_;  // by slot
};

}  // namespace gradbus
