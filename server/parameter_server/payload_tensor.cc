#include "server/parameter_server/payload_tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "compression/random.h"
#include "data_plane/collectives/frame_check.h"
#include "data_plane/second_encoding.h"

namespace gradbus {
namespace {

// The maximum of pushes and answers, so that both fit a buffer.
uint64_t payload_bytes_max_of(const ShardPlan& plan, const Codec& codec) {
  const uint64_t count = longest_partition(plan).count_max;
  return std::max(
      codec.payload_bytes_max(count),
      second_codec(plan.compression.spec, longest_partition(plan), plan.collective.agents)
          ->payload_bytes_max(count));
}

}  // namespace

bool keeps_second_residual(const ShardPlan& plan) {
  return !plan.mode.holds_parameters() && !plan.compression.spec.none() &&
         second_error_feedback(plan.compression.spec, plan.collective.agents).kind !=
             ErrorFeedbackKind::kNone;
}

PayloadTensor::PayloadTensor(const ShardPlan& plan, Transport& transport,
                             std::unique_ptr<Codec> codec)
    : ShardTensor(of_payloads(plan), transport, plan.collective.agents + 1,
                  payload_bytes_max_of(plan, *codec)),
      codec_(std::move(codec)),
      frames_max_(PayloadCut{payload_bytes_max_of(plan, *codec_)}.frames()),
      arriving_(chunks_stored() * agents(), frames_max_),
      unsent_(chunks_stored() * agents()),
      sum_(longest_partition(plan).count_max),
      leaving_(transport) {
  partitions_.reserve(chunks_stored());
  const CompressionPlan& compression = plan.compression;
  for (uint32_t partition = 0; partitions_.size() < chunks_stored(); ++partition) {
    if (!holds(partition)) continue;
    const CodecShape shape = partition_shape(compression, plan.collective.count, partition);
    partitions_.push_back(
        {second_codec(compression.spec, shape, agents()),
         ErrorFeedback(second_error_feedback(compression.spec, agents()), shape.count_max)});
    if (plan.moved) partitions_.back().lacks = partitions_.back().error_feedback.residual().size();
  }
}

Result<std::unique_ptr<ShardTensor>> PayloadTensor::create(const ShardPlan& plan,
                                                           Transport& transport) {
  std::unique_ptr<PayloadTensor> tensor(new PayloadTensor(
      plan, transport, make_codec(plan.compression.spec, longest_partition(plan))));
  GRADBUS_RETURN_IF_ERROR(tensor->open());
  return std::unique_ptr<ShardTensor>(std::move(tensor));
}

// ---- pushes

size_t PayloadTensor::payload_bytes_max(uint32_t partition) const {
  return codec_->payload_bytes_max(elements(partition));
}

std::span<std::byte> PayloadTensor::pushed(uint32_t partition, uint32_t agent) const {
  return {buffer(partition, agent), arriving_.bytes(sender(agent, partition))};
}

Status PayloadTensor::check_piece(uint32_t agent, const FrameHeader& header) const {
  const uint32_t partition = chunk_of(header);
  GRADBUS_RETURN_IF_ERROR(
      expect_below(header, "total", header.total, payload_bytes_max(partition) + 1));
  const auto scale = std::bit_cast<float>(header.source);
  if (!std::isfinite(scale) || scale < 0) return refuse_frame(header, "a memory scale of nonsense");
  // An applied push is stored in its first form until it is summed.
  if (header.step == pushes(agent, partition))
    GRADBUS_RETURN_IF_ERROR(
        expect_field(header, "total", header.total, arriving_.bytes(sender(agent, partition))));
  return arriving_.check(sender(agent, partition), header);
}

Result<bool> PayloadTensor::collect(uint32_t agent, const FrameHeader& header,
                                    std::span<const std::byte> payload) {
  const uint32_t partition = chunk_of(header);
  if (agent == 0) partitions_[slot(partition)].residual_scale = std::bit_cast<float>(header.source);
  if (!arriving_.take(sender(agent, partition), header, payload, buffer(partition, agent)))
    return false;
  if (const Status bad = codec_->check(pushed(partition, agent), elements(partition)); !bad.ok())
    return bad.with_context("tensor \"" + plan().name + "\"");
  return true;
}

void PayloadTensor::take(const Push& push, Nanos, std::vector<ShardAnswer>& answers) {
  ++partitions_[slot(push.chunk)].arrived;
  answer_if_whole(push.chunk, answers);
}

void PayloadTensor::answer_if_whole(uint32_t partition, std::vector<ShardAnswer>& answers) {
  Partition& state = partitions_[slot(partition)];
  if (state.arrived < agents() || state.lacks > 0) return;
  state.arrived = 0;
  sum(partition);
  encode(partition, pushes(0, partition));
  for (uint32_t agent = 0; agent < agents(); ++agent) send(agent, partition, answers);
}

void PayloadTensor::send(uint32_t agent, uint32_t partition, std::vector<ShardAnswer>& answers) {
  const PayloadCut& cut = partitions_[slot(partition)].answer;
  unsent_[sender(agent, partition)] = cut.frames();
  owe(agent, partition, answer_buffer());
  for (uint32_t index = 0; index < cut.frames(); ++index)
    answers.push_back({agent, partition, pushes(agent, partition), 0, index, cut.bytes_of(index)});
}

// The next sum is encoded only after this agent has pushed too.
void PayloadTensor::answer_again(uint32_t agent, uint32_t partition,
                                 std::vector<ShardAnswer>& answers) {
  send(agent, partition, answers);
}

void PayloadTensor::sum(uint32_t partition) {
  const std::span<float> sum = std::span(sum_).first(elements(partition));
  codec_->decode(pushed(partition, 0), 1, sum);
  for (uint32_t agent = 1; agent < agents(); ++agent)
    codec_->accumulate(pushed(partition, agent), 1, sum);
}

// Encodes like an owner among the agents: owner_reduce.cc.
void PayloadTensor::encode(uint32_t partition, uint64_t round) {
  Partition& state = partitions_[slot(partition)];
  if (state.residual_scale != 1) state.error_feedback.rescale(state.residual_scale);
  const uint64_t seed = mix_u64(
      peer_seed(partition_seed(plan().tensor_seed, partition, round), agents() + plan().shard));
  const EncodeInput input =
      state.error_feedback.compensate(std::span(sum_).first(elements(partition)), seed, round);
  const std::span<std::byte> whole{buffer(partition, answer_buffer()),
                                   state.codec->payload_bytes_max(elements(partition))};
  state.answer = {state.codec->encode(input, whole)};
}

// ---- moves

// Residuals belong to the codec, so a copy of them is sent.
Status PayloadTensor::begin_to_leave() {
  if (state_vectors() == 0) return {};
  GRADBUS_RETURN_IF_ERROR(
      leaving_.map(chunks_stored() * plan().collective.chunk_elements * sizeof(float),
                   "what leaves with tensor \"" + plan().name + "\""));
  for (uint32_t partition = 0; partition < plan().collective.chunks(); ++partition)
    if (holds(partition))
      std::ranges::copy(
          std::as_bytes(partitions_[slot(partition)].error_feedback.residual()),
          leaving_.bytes().begin() + static_cast<ptrdiff_t>(leaving_offset(partition)));
  return {};
}

std::span<const float> PayloadTensor::state_values(uint32_t partition, uint32_t) const {
  return {reinterpret_cast<const float*>(&leaving_.bytes()[leaving_offset(partition)]),
          elements(partition)};
}

Slice PayloadTensor::state_slice(uint32_t partition, uint32_t, uint64_t first,
                                 uint64_t elements) const {
  return {leaving_.region(), leaving_offset(partition) + first * sizeof(float),
          elements * sizeof(float)};
}

bool PayloadTensor::take_state(uint32_t partition, const ShardChunkPart& part,
                               std::vector<ShardAnswer>& answers) {
  Partition& state = partitions_[slot(partition)];
  if (part.values.size() > state.lacks) return false;
  std::ranges::copy(part.values,
                    state.error_feedback.residual().begin() + static_cast<ptrdiff_t>(part.first));
  state.lacks -= part.values.size();
  if (state.lacks > 0 || part.values.empty()) return false;
  answer_if_whole(partition, answers);
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
  header.operation = static_cast<uint16_t>(answer.chunk);
  header.chunk = answer.buffer;
  header.total = partitions_[slot(answer.chunk)].answer.bytes;
  return header;
}

}  // namespace gradbus
