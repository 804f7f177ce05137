// Mode ps:sync on a shard. A chunk is summed while its pushes arrive. When all agents have pushed,
// all get the result. There is no state between rounds.
//
// A chunk has two buffers: the sum in progress, and the last result, which may still be sent to a
// slow agent. That agent cannot push again before the result has arrived, so no third buffer is
// needed. The result stays until the next one is complete, because an agent may request it again
// (shard_tensor.h). Pushes are summed in the order of arrival.
#pragma once

#include "server/parameter_server/shard_tensor.h"

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
    uint32_t last = kBuffers;  // buffer of the last result; kBuffers: none
  };
  SummedTensor(const ShardPlan& plan, Transport& transport);
  void add(uint32_t chunk, const Sum& sum, std::span<const std::byte> payload);

  std::vector<Sum> sums_;  // by slot
};

}  // namespace gradbus
