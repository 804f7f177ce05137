#include "server/parameter_server/summed_tensor.h"

namespace gradbus {

SummedTensor::SummedTensor(const ShardPlan& plan, Transport& transport)
    : ShardTensor(plan, transport, kBuffers), sums_(chunks_stored()) {}

Result<std::unique_ptr<ShardTensor>> SummedTensor::create(const ShardPlan& plan,
                                                          Transport& transport) {
  std::unique_ptr<SummedTensor> tensor(new SummedTensor(plan, transport));
  GRADBUS_RETURN_IF_ERROR(tensor->open());
  return std::unique_ptr<ShardTensor>(std::move(tensor));
}

void SummedTensor::take(const Push& push, Nanos, std::vector<ShardAnswer>& answers) {
  const uint32_t chunk = push.chunk;
  Sum& sum = sums_[slot(chunk)];
  if (sum.arrived == 0) {
    sum.buffer = unused_buffer(chunk);
    use(chunk, sum.buffer);
  }
  ++sum.arrived;
  add(chunk, sum, push.payload);
  if (sum.arrived < agents()) return;
  for (uint32_t agent = 0; agent < agents(); ++agent) answer(agent, chunk, sum.buffer, 0, answers);
  if (sum.last != kBuffers) let_go(chunk, sum.last);
  sum.last = sum.buffer;
  sum.arrived = 0;
}

void SummedTensor::answer_again(uint32_t agent, uint32_t chunk, std::vector<ShardAnswer>& answers) {
  answer(agent, chunk, sums_[slot(chunk)].last, 0, answers);
}

// Averages and factors are applied in the pass that writes the result.
void SummedTensor::add(uint32_t chunk, const Sum& sum, std::span<const std::byte> payload) {
  if (payload.empty()) return;
  const Reduction reduction =
      sum.arrived == agents() ? plan().last : Reduction{.op = plan().last.op};
  std::byte* const target[] = {buffer(chunk, sum.buffer)};
  const std::byte* const sources[] = {payload.data(), target[0]};
  reduce(plan().collective.dtype, reduction, std::span(sources).first(sum.arrived == 1 ? 1 : 2),
         target, elements(chunk));
}

}  // namespace gradbus
