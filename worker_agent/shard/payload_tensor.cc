#include "worker_agent/shard/payload_tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compression/random.h"
#include "worker_agent/collectives/frame_check.h"
#include "worker_agent/compressed/second_encoding.h"

namespace gradbus {
namespace {

// The maximum of pushes and answers, so that both fit a buffer.
uint64_t payload_bytes_max_of(const ShardPlan& plan, const Codec& codec) {
  const uint64_t count = longest_unit(plan).count_max;
  return std::max(
      codec.payload_bytes_max(count),
      second_codec(plan.compression.spec, longest_unit(plan))->payload_bytes_max(count));
}

}  // namespace

bool keeps_second_residual(const ShardPlan& plan) {
  return !plan.mode.holds_parameters() && !plan.compression.spec.none() &&
         second_memory(plan.compression.spec, plan.collective.agents).kind != MemoryKind::kNone;
}

PayloadTensor::PayloadTensor(const ShardPlan& plan, Transport& transport,
                             std::unique_ptr<Codec> codec)
    : ShardTensor(of_payloads(plan), transport, plan.collective.agents + 1,
                  payload_bytes_max_of(plan, *codec)),
      codec_(std::move(codec)),
      frames_max_(PayloadCut{payload_bytes_max_of(plan, *codec_)}.frames()),
      arriving_(chunks_held() * agents(), frames_max_),
      unsent_(chunks_held() * agents()),
      sum_(longest_unit(plan).count_max),
      leaving_(transport) {
  units_.reserve(chunks_held());
  const CompressionPlan& compression = plan.compression;
  for (uint32_t unit = 0; units_.size() < chunks_held(); ++unit) {
    if (!holds(unit)) continue;
    const CodecShape shape = unit_shape(compression, plan.collective.count, unit);
    units_.push_back({second_codec(compression.spec, shape),
                      Memory(second_memory(compression.spec, agents()), shape.count_max)});
    if (plan.moved) units_.back().lacks = units_.back().memory.residual().size();
  }
}

Result<std::unique_ptr<ShardTensor>> PayloadTensor::create(const ShardPlan& plan,
                                                           Transport& transport) {
  std::unique_ptr<PayloadTensor> tensor(
      new PayloadTensor(plan, transport, make_codec(plan.compression.spec, longest_unit(plan))));
  GRADBUS_RETURN_IF_ERROR(tensor->open());
  return std::unique_ptr<ShardTensor>(std::move(tensor));
}

// ---- pushes

size_t PayloadTensor::payload_bytes_max(uint32_t unit) const {
  return codec_->payload_bytes_max(elements(unit));
}

std::span<std::byte> PayloadTensor::pushed(uint32_t unit, uint32_t agent) const {
  return {buffer(unit, agent), arriving_.bytes(sender(agent, unit))};
}

Status PayloadTensor::check_piece(uint32_t agent, const FrameHeader& header) const {
  const uint32_t unit = chunk_of(header);
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "total", header.total, payload_bytes_max(unit) + 1));
  const auto scale = std::bit_cast<float>(header.source);
  if (!std::isfinite(scale) || scale < 0) return refuse_frame(header, "a memory scale of nonsense");
  // An applied push is stored in its first form until it is summed.
  if (header.step == pushes(agent, unit))
    GRADBUS_RETURN_IF_ERROR(
        expect_field(header, "total", header.total, arriving_.bytes(sender(agent, unit))));
  return arriving_.check(sender(agent, unit), header);
}

Result<bool> PayloadTensor::collect(uint32_t agent, const FrameHeader& header,
                                    std::span<const std::byte> payload) {
  const uint32_t unit = chunk_of(header);
  if (agent == 0) units_[slot(unit)].memory_scale = std::bit_cast<float>(header.source);
  if (!arriving_.take(sender(agent, unit), header, payload, buffer(unit, agent))) return false;
  if (const Status bad = codec_->check(pushed(unit, agent), elements(unit)); !bad.ok())
    return bad.with_context("tensor \"" + plan().name + "\"");
  return true;
}

void PayloadTensor::take(const Push& push, Nanos, std::vector<ShardAnswer>& answers) {
  ++units_[slot(push.chunk)].arrived;
  answer_if_whole(push.chunk, answers);
}

void PayloadTensor::answer_if_whole(uint32_t unit, std::vector<ShardAnswer>& answers) {
  Unit& state = units_[slot(unit)];
  if (state.arrived < agents() || state.lacks > 0) return;
  state.arrived = 0;
  sum(unit);
  encode(unit, pushes(0, unit));
  for (uint32_t agent = 0; agent < agents(); ++agent) send(agent, unit, answers);
}

void PayloadTensor::send(uint32_t agent, uint32_t unit, std::vector<ShardAnswer>& answers) {
  const PayloadCut& cut = units_[slot(unit)].answer;
  unsent_[sender(agent, unit)] = cut.frames();
  owe(agent, unit, answer_buffer());
  for (uint32_t index = 0; index < cut.frames(); ++index)
    answers.push_back({agent, unit, pushes(agent, unit), 0, index, cut.bytes_of(index)});
}

// The next sum is encoded only after this agent has pushed too.
void PayloadTensor::answer_again(uint32_t agent, uint32_t unit, std::vector<ShardAnswer>& answers) {
  send(agent, unit, answers);
}

void PayloadTensor::sum(uint32_t unit) {
  const std::span<float> sum = std::span(sum_).first(elements(unit));
  codec_->decode(pushed(unit, 0), 1, sum);
  for (uint32_t agent = 1; agent < agents(); ++agent)
    codec_->accumulate(pushed(unit, agent), 1, sum);
}

// Encodes like an owner among the agents: owned_unit.cc.
void PayloadTensor::encode(uint32_t unit, uint64_t round) {
  Unit& state = units_[slot(unit)];
  if (state.memory_scale != 1) state.memory.rescale(state.memory_scale);
  const uint64_t seed =
      mix_u64(peer_seed(unit_seed(plan().tensor_seed, unit, round), agents() + plan().shard));
  const EncodeInput input =
      state.memory.compensate(std::span(sum_).first(elements(unit)), seed, round);
  const std::span<std::byte> whole{buffer(unit, answer_buffer()),
                                   state.codec->payload_bytes_max(elements(unit))};
  state.answer = {state.codec->encode(input, whole)};
}

// ---- moves

// Residuals belong to the codec, so a copy of them is sent.
Status PayloadTensor::begin_to_leave() {
  if (vectors_kept() == 0) return {};
  GRADBUS_RETURN_IF_ERROR(
      leaving_.map(chunks_held() * plan().collective.chunk_elements * sizeof(float),
                   "what leaves with tensor \"" + plan().name + "\""));
  for (uint32_t unit = 0; unit < plan().collective.chunks(); ++unit)
    if (holds(unit))
      std::ranges::copy(std::as_bytes(units_[slot(unit)].memory.residual()),
                        leaving_.bytes().begin() + static_cast<ptrdiff_t>(leaving_offset(unit)));
  return {};
}

std::span<const float> PayloadTensor::kept_values(uint32_t unit, uint32_t) const {
  return {reinterpret_cast<const float*>(&leaving_.bytes()[leaving_offset(unit)]), elements(unit)};
}

Slice PayloadTensor::kept_slice(uint32_t unit, uint32_t, uint64_t first, uint64_t elements) const {
  return {leaving_.region(), leaving_offset(unit) + first * sizeof(float),
          elements * sizeof(float)};
}

bool PayloadTensor::take_kept(uint32_t unit, const KeptPart& part,
                              std::vector<ShardAnswer>& answers) {
  Unit& state = units_[slot(unit)];
  if (part.values.size() > state.lacks) return false;
  std::ranges::copy(part.values,
                    state.memory.residual().begin() + static_cast<ptrdiff_t>(part.first));
  state.lacks -= part.values.size();
  if (state.lacks > 0 || part.values.empty()) return false;
  answer_if_whole(unit, answers);
  return true;
}

// ---- answers: `buffer` is the frame of the payload

void PayloadTensor::on_sent(const ShardAnswer& answer) {
  if (--unsent_[sender(answer.agent, answer.chunk)] > 0) return;
  ShardAnswer whole = answer;
  whole.buffer = answer_buffer();
  ShardTensor::on_sent(whole);
}

Slice PayloadTensor::slice(const ShardAnswer& answer) const {
  ShardAnswer whole = answer;
  whole.buffer = answer_buffer();
  Slice slice = ShardTensor::slice(whole);
  slice.offset += answer.buffer * kPayloadChunkBytes;
  return slice;
}

FrameHeader PayloadTensor::frame(const ShardAnswer& answer) const {
  FrameHeader header = ShardTensor::frame(answer);
  header.exchange = static_cast<uint16_t>(answer.chunk);
  header.chunk = answer.buffer;
  header.total = units_[slot(answer.chunk)].answer.bytes;
  return header;
}

}  // namespace gradbus
