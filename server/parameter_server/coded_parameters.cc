#include "server/parameter_server/coded_parameters.h"

#include <algorithm>

#include "compression/kernels/vector/compensate.h"
#include "compression/random.h"
#include "data_plane/collectives/frame_check.h"

namespace gradbus {
namespace {

constexpr uint32_t kParameterBuffers = 2;  // the current parameters, and those of the next step

size_t round_up(size_t bytes) { return (bytes + 127) / 128 * 128; }

size_t partition_bytes(const ShardPlan& plan) {
  return longest_partition(plan).count_max * sizeof(float);
}

}  // namespace

CodedParameters::CodedParameters(const ShardPlan& plan, Transport& transport,
                                 std::unique_ptr<Codec> codec)
    : ParameterTensor(of_payloads(plan), plan.collective.op, transport, kParameterBuffers,
                      partition_bytes(plan)),
      codec_(std::move(codec)),
      payload_bytes_(round_up(codec_->payload_bytes_max(longest_partition(plan).count_max))),
      view_bytes_(round_up(partition_bytes(plan))),
      frames_max_(PayloadCut{std::max(payload_bytes_, view_bytes_)}.frames()),
      arriving_(chunks_stored() * agents(), frames_max_),
      answers_(chunks_stored() * agents()),
      scratch_(longest_partition(plan).count_max),
      coded_(transport) {}

Result<std::unique_ptr<ShardTensor>> CodedParameters::create(const ShardPlan& plan,
                                                             Transport& transport) {
  std::unique_ptr<CodedParameters> tensor(new CodedParameters(
      plan, transport, make_codec(plan.compression.spec, longest_partition(plan))));
  GRADBUS_RETURN_IF_ERROR(tensor->open());
  GRADBUS_RETURN_IF_ERROR(tensor->open_state());
  GRADBUS_RETURN_IF_ERROR(tensor->open_coded());
  return std::unique_ptr<ShardTensor>(std::move(tensor));
}

Status CodedParameters::open_coded() {
  return coded_.map(answers_.size() * (payload_bytes_ + view_bytes_),
                    "what agents have of tensor \"" + plan().name + "\"");
}

std::span<std::byte> CodedParameters::payload(uint32_t agent, uint32_t partition) const {
  return coded_.bytes().subspan(payload_offset(agent, partition), payload_bytes_);
}

std::span<float> CodedParameters::view(uint32_t agent, uint32_t partition) const {
  return {reinterpret_cast<float*>(&coded_.bytes()[view_offset(agent, partition)]),
          elements(partition)};
}

// ---- pushes
//
// In the first round, and when state is written, a push contains agent 0's elements or nothing.
// Later it contains a payload, or nothing for a pull.

Status CodedParameters::check_piece(uint32_t agent, const FrameHeader& header) const {
  const uint32_t partition = chunk_of(header);
  const bool dense = comes_dense(header);
  const CodecId codec = dense ? CodecId::kDense : plan().collective.codec;
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "codec", header.codec, static_cast<uint64_t>(codec)));
  if (dense || header.source == kPullOnly || reads_optimizer_state(header.source)) {
    const uint64_t bytes = dense && agent == 0 ? elements(partition) * sizeof(float) : 0;
    GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, bytes));
  } else {
    const uint64_t bytes_max = codec_->payload_bytes_max(elements(partition));
    GRADBUS_RETURN_IF_ERROR(expect_below(header, "total", header.total, bytes_max + 1));
  }
  return arriving_.check(pair(agent, partition), header);
}

Result<bool> CodedParameters::collect(uint32_t agent, const FrameHeader& header,
                                      std::span<const std::byte> frame) {
  const uint32_t partition = chunk_of(header);
  const bool dense = comes_dense(header);
  const std::span<std::byte> to =
      dense ? std::as_writable_bytes(view(agent, partition)) : payload(agent, partition);
  const size_t from = pair(agent, partition);
  if (!arriving_.take(from, header, frame, to.data())) return false;
  if (dense || header.source == kPullOnly || reads_optimizer_state(header.source)) return true;
  const Status bad = codec_->check(to.first(arriving_.bytes(from)), elements(partition));
  return bad.ok() ? Result<bool>(true) : bad.with_context("tensor \"" + plan().name + "\"");
}

std::span<const float> CodedParameters::values_of(const Push& push) {
  const uint32_t partition = push.chunk;
  if (pushes(push.agent, partition) == 1 || push.writes) return view(push.agent, partition);
  const size_t bytes = arriving_.bytes(pair(push.agent, partition));
  codec_->decode(payload(push.agent, partition).first(bytes), 1, scratch(partition));
  return scratch(partition);
}

// ---- answers: `buffer` is the frame

void CodedParameters::give(uint32_t agent, uint32_t partition, uint32_t staleness,
                           std::vector<ShardAnswer>& answers) {
  answers_[pair(agent, partition)].staleness = staleness;
  wanted_part(agent, partition) > 0 ? give_optimizer_state(agent, partition)
                                    : make_answer(agent, partition);
  send(agent, partition, answers);
}

void CodedParameters::make_answer(uint32_t agent, uint32_t partition) {
  Answer& answer = answers_[pair(agent, partition)];
  const bool exact = !answer.has_view || rests(agent, partition);
  answer.has_view = true;
  answer.dense = exact || !encode(agent, partition, answer.cut);
  if (!answer.dense) return;
  std::ranges::copy(parameters(partition), view(agent, partition).begin());
  answer.cut = {view(agent, partition).size_bytes()};
}

void CodedParameters::give_optimizer_state(uint32_t agent, uint32_t partition) {
  Answer& answer = answers_[pair(agent, partition)];
  const std::span<float> view = this->view(agent, partition);
  answer.view_aside = LargeVector<float>(view.size());
  std::ranges::copy(view, answer.view_aside.begin());
  copy_optimizer_state(partition, wanted_part(agent, partition), view);
  answer.dense = true;
  answer.cut = {view.size_bytes()};
}

void CodedParameters::send(uint32_t agent, uint32_t partition, std::vector<ShardAnswer>& answers) {
  Answer& answer = answers_[pair(agent, partition)];
  answer.unsent = answer.cut.frames();
  begin_answer(agent, partition);
  for (uint32_t index = 0; index < answer.cut.frames(); ++index)
    answers.push_back({agent, partition, pushes(agent, partition), answer.staleness, index,
                       answer.cut.bytes_of(index)});
}

// Sends the same answer: nothing was written to its memory since, and the view is the agent's view
// after it. An answer with kept state contains its current values.
void CodedParameters::answer_again(uint32_t agent, uint32_t partition,
                                   std::vector<ShardAnswer>& answers) {
  if (wanted_part(agent, partition) > 0) give_optimizer_state(agent, partition);
  send(agent, partition, answers);
}

// Encodes what the agent lacks; its view is then what it will have. Returns false when that is
// impossible or not worth it.
bool CodedParameters::encode(uint32_t agent, uint32_t partition, PayloadCut& cut) {
  const std::span<float> view = this->view(agent, partition);
  const std::span<const float> now = parameters(partition);
  const std::span<float> difference = scratch(partition);
  for (size_t i = 0; i < view.size(); ++i) difference[i] = now[i] - view[i];
  const uint64_t round = pushes(agent, partition);
  const uint64_t of_shard =
      peer_seed(partition_seed(plan().tensor_seed, partition, round), agents() + plan().shard);
  const EncodeInput input{
      .gradient = difference, .seed = mix_u64(of_shard + agent), .round = round};
  const std::span<std::byte> payload = this->payload(agent, partition);
  cut = {codec_->encode(input, payload)};
  if (cut.bytes >= view.size_bytes()) return false;
  codec_->accumulate(payload.first(cut.bytes), 1, view);
  return first_not_finite(view.data(), view.size()) == view.size();
}

void CodedParameters::on_sent(const ShardAnswer& answer) {
  Answer& whole = answers_[pair(answer.agent, answer.chunk)];
  if (--whole.unsent > 0) return;
  if (!whole.view_aside.empty()) {
    std::ranges::copy(whole.view_aside, view(answer.agent, answer.chunk).begin());
    whole.view_aside = {};
  }
  end_answer(answer.agent, answer.chunk);
}

Slice CodedParameters::slice(const ShardAnswer& answer) const {
  const bool dense = answers_[pair(answer.agent, answer.chunk)].dense;
  const size_t offset =
      dense ? view_offset(answer.agent, answer.chunk) : payload_offset(answer.agent, answer.chunk);
  return {coded_.region(), offset + answer.buffer * kPayloadChunkBytes, answer.bytes};
}

FrameHeader CodedParameters::frame(const ShardAnswer& answer) const {
  const Answer& whole = answers_[pair(answer.agent, answer.chunk)];
  FrameHeader header = ShardTensor::frame(answer);
  if (whole.dense) header.codec = static_cast<uint8_t>(CodecId::kDense);
  header.operation = static_cast<uint16_t>(answer.chunk);
  header.chunk = answer.buffer;
  header.total = whole.cut.bytes;
  return header;
}

}  // namespace gradbus
