#include "server/parameter_server/whole_parameters.h"

#include <cstring>

#include "data_plane/collectives/frame_check.h"

namespace gradbus {
namespace {

ShardPlan of_one_chunk(ShardPlan plan) {
  plan.collective.chunk_elements = plan.cut().chunk_elements;
  return plan;
}

}  // namespace

WholeParameters::WholeParameters(const ShardPlan& plan, Transport& transport)
    : ParameterTensor(of_one_chunk(plan), plan.collective.op, transport,
                      plan.collective.agents + 1),
      frames_(plan.collective.chunk_plan()),
      senders_(agents()),
      here_(chunks_stored() * agents() * frames_.chunks()),
      pushes_(transport) {}

Result<std::unique_ptr<ShardTensor>> WholeParameters::create(const ShardPlan& plan,
                                                             Transport& transport) {
  std::unique_ptr<WholeParameters> tensor(new WholeParameters(plan, transport));
  GRADBUS_RETURN_IF_ERROR(tensor->open());
  GRADBUS_RETURN_IF_ERROR(tensor->open_state());
  GRADBUS_RETURN_IF_ERROR(tensor->open_pushes());
  return std::unique_ptr<ShardTensor>(std::move(tensor));
}

Status WholeParameters::open_pushes() {
  return pushes_.map(chunks_stored() * agents() * frames_.count * sizeof(float),
                     "pushes of tensor \"" + plan().name + "\"");
}

std::span<float> WholeParameters::pushed(uint32_t agent) const {
  return {reinterpret_cast<float*>(pushes_.bytes().data()) + agent * frames_.count, frames_.count};
}

// ---- pushes

Status WholeParameters::check_piece(uint32_t agent, const FrameHeader& header) const {
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "operation", header.operation, 0));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, frames_.count));
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "chunk", header.chunk, frames_.chunks()));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "length", header.length, frame_bytes(header.chunk)));
  const Agent& from = senders_[agent];
  if (from.here > 0)
    GRADBUS_RETURN_IF_ERROR(expect_field(header, "source", header.source, from.source));
  return here_[here(agent, header.chunk)] ? refuse_frame(header, "a chunk that has come already")
                                          : Status();
}

Result<bool> WholeParameters::collect(uint32_t agent, const FrameHeader& header,
                                      std::span<const std::byte> payload) {
  if (!payload.empty())
    std::memcpy(&pushed(agent)[frames_.range(header.chunk).first], payload.data(), payload.size());
  return collect_again(agent, header);
}

bool WholeParameters::collect_again(uint32_t agent, const FrameHeader& header) {
  Agent& from = senders_[agent];
  from.source = header.source;
  here_[here(agent, header.chunk)] = true;
  if (++from.here < frames_.chunks()) return false;
  forget_collected(agent, kAll);
  return true;
}

void WholeParameters::forget_collected(uint32_t agent, uint32_t) {
  senders_[agent].here = 0;
  for (uint32_t index = 0; index < frames_.chunks(); ++index) here_[here(agent, index)] = false;
}

std::span<const float> WholeParameters::values_of(const Push& push) { return pushed(push.agent); }

// ---- answers: `buffer` is the chunk

void WholeParameters::give(uint32_t agent, uint32_t chunk, uint32_t staleness,
                           std::vector<ShardAnswer>& answers) {
  Agent& to = senders_[agent];
  to.buffer = wanted_buffer(agent, chunk);
  to.unsent = frames_.chunks();
  owe(agent, chunk, to.buffer);
  for (uint32_t index = 0; index < frames_.chunks(); ++index)
    answers.push_back({agent, chunk, pushes(agent, chunk), staleness, index, frame_bytes(index)});
}

void WholeParameters::on_sent(const ShardAnswer& answer) {
  Agent& to = senders_[answer.agent];
  if (--to.unsent > 0) return;
  ShardAnswer whole = answer;
  whole.buffer = to.buffer;
  ShardTensor::on_sent(whole);
}

Slice WholeParameters::slice(const ShardAnswer& answer) const {
  ShardAnswer whole = answer;
  whole.buffer = senders_[answer.agent].buffer;
  Slice slice = ShardTensor::slice(whole);
  slice.offset += frames_.range(answer.buffer).first * sizeof(float);
  return slice;
}

FrameHeader WholeParameters::frame(const ShardAnswer& answer) const {
  FrameHeader header = ShardTensor::frame(answer);
  header.chunk = answer.buffer;
  return header;
}

}  // namespace gradbus
