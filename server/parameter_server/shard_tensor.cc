#include "server/parameter_server/shard_tensor.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "common/check.h"
#include "data_plane/collectives/frame_check.h"
#include "server/parameter_server/coded_parameters.h"
#include "server/parameter_server/parameter_tensor.h"
#include "server/parameter_server/payload_tensor.h"
#include "server/parameter_server/summed_tensor.h"
#include "server/parameter_server/whole_parameters.h"

namespace gradbus {
namespace {

// Buffers begin on cache lines.
uint64_t buffer_bytes_of(const CollectivePlan& plan, uint64_t wanted) {
  const uint64_t bytes = wanted > 0 ? wanted : plan.chunk_elements * dtype_bytes(plan.dtype);
  return (bytes + 127) / 128 * 128;
}

}  // namespace

ShardTensor::ShardTensor(const ShardPlan& plan, Transport& transport, uint32_t buffers,
                         uint64_t buffer_bytes)
    : plan_(plan),
      cut_(plan.collective.chunk_plan()),
      buffers_(buffers),
      buffer_bytes_(buffer_bytes_of(plan.collective, buffer_bytes)),
      slot_of_(cut_.chunks(), kElsewhere),
      memory_(transport) {
  for (uint32_t chunk = 0; chunk < slot_of_.size(); ++chunk)
    if (plan.collective.shard_of(chunk) == plan.shard) slot_of_[chunk] = stored_++;
  uses_.resize(size_t{stored_} * buffers_);
  pushes_.resize(size_t{stored_} * agents());
  turns_.resize(pushes_.size(), Turn::kAgents);
  reached_.resize(pushes_.size(), Reached::kYes);
}

Status ShardTensor::open() {
  return memory_.map(size_t{stored_} * buffers_ * buffer_bytes_,
                     "a shard of tensor \"" + plan_.name + "\"");
}

// ---- pushes

Status ShardTensor::check(uint32_t agent, const FrameHeader& header, bool next) const {
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "kind", header.kind, static_cast<uint64_t>(FrameKind::kReduce)));
  GRADBUS_RETURN_IF_ERROR(check_signature(plan_.collective, header));
  const uint32_t chunk = chunk_of(header);
  if (agent >= agents()) return refuse_frame(header, "a push of another shard");
  if (!holds(chunk)) return refuse_frame(header, "a chunk that another shard holds");
  const uint64_t step = pushes(agent, chunk) + (next ? 1 : 0);
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "step", header.step, step));
  if (next && turns_[pair(agent, chunk)] != Turn::kAgents)
    return refuse_frame(header, "a push before the last one was answered");
  if ((reads_optimizer_state(header.source) || writes_optimizer_state(header.source)) &&
      optimizer_state_part(header.source) >= optimizer_state_parts())
    return refuse_frame(header, "a part that is not kept");
  return check_piece(agent, header);
}

Status ShardTensor::check_piece(uint32_t, const FrameHeader& header) const {
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "operation", header.operation, 0));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, plan_.collective.count));
  const uint64_t bytes = elements(header.chunk) * dtype_bytes(plan_.collective.dtype);
  return expect_field(header, "length", header.length, bytes);
}

bool ShardTensor::must_wait(uint32_t agent, const FrameHeader& header) const {
  const uint32_t chunk = chunk_of(header);
  return agent < agents() && holds(chunk) && turns_[pair(agent, chunk)] == Turn::kTransports;
}

Status ShardTensor::on_push(uint32_t agent, const FrameHeader& header,
                            std::span<const std::byte> payload, Nanos now,
                            std::vector<ShardAnswer>& answers) {
  const Result<bool> whole = admit(agent, header, payload);
  if (!whole.ok()) return whole.status();
  if (whole.value()) take_admitted(agent, header, payload, now, answers);
  return {};
}

Result<bool> ShardTensor::admit(uint32_t agent, const FrameHeader& header,
                                std::span<const std::byte> payload) {
  if (const Status bad = check(agent, header, true); !bad.ok()) return bad;
  Result<bool> whole = collect(agent, header, payload);
  if (whole.ok() && whole.value()) turns_[pair(agent, chunk_of(header))] = Turn::kOurs;
  return whole;
}

void ShardTensor::take_admitted(uint32_t agent, const FrameHeader& header,
                                std::span<const std::byte> payload, Nanos now,
                                std::vector<ShardAnswer>& answers) {
  const uint32_t chunk = chunk_of(header);
  pushes_[pair(agent, chunk)] = header.step;
  turns_[pair(agent, chunk)] = Turn::kOurs;
  const bool reads = reads_optimizer_state(header.source);
  const bool writes = writes_optimizer_state(header.source);
  const bool pull_only = header.source == kPullOnly || reads || writes;
  const auto rate = std::bit_cast<float>(header.source);
  const bool has_rate = header.source != 0 && std::isfinite(rate);
  take({agent, chunk, payload, pull_only, has_rate, std::abs(rate), reads, writes,
        reads || writes ? optimizer_state_part(header.source) : 0},
       now, answers);
}

// A push that is neither the last one nor the next is refused by check(), as always.
Result<bool> ShardTensor::fail_over(uint32_t agent, const FrameHeader& header,
                                    std::vector<ShardAnswer>& answers) {
  const uint32_t chunk = chunk_of(header);
  const size_t at = pair(agent, chunk);
  const bool taken = header.step != 0 && header.step == pushes_[at];
  if (reached_[at] == Reached::kNot) {
    forget_collected(agent, chunk);
    reached_[at] = taken ? Reached::kPushesAgain : Reached::kYes;
  }
  if (!taken) return false;
  if (const Status bad = check(agent, header, false); !bad.ok()) return bad;
  if (!collect_again(agent, header)) return true;
  reached_[at] = Reached::kYes;
  if (turns_[at] == Turn::kAgents) answer_again(agent, chunk, answers);
  return true;
}

// ---- answers

void ShardTensor::owe(uint32_t agent, uint32_t chunk, uint32_t buffer) {
  use(chunk, buffer);
  begin_answer(agent, chunk);
}

void ShardTensor::answer(uint32_t agent, uint32_t chunk, uint32_t buffer, uint32_t staleness,
                         std::vector<ShardAnswer>& answers) {
  owe(agent, chunk, buffer);
  answers.push_back({agent, chunk, pushes(agent, chunk), staleness, buffer,
                     elements(chunk) * dtype_bytes(plan_.collective.dtype)});
}

bool ShardTensor::sends() const {
  return std::ranges::any_of(turns_, [](Turn turn) { return turn == Turn::kTransports; });
}

void ShardTensor::on_sent(const ShardAnswer& answer) {
  end_answer(answer.agent, answer.chunk);
  let_go(answer.chunk, answer.buffer);
}

size_t ShardTensor::buffer_offset(uint32_t chunk, uint32_t index) const {
  return (slot(chunk) * buffers_ + index) * buffer_bytes_;
}

std::byte* ShardTensor::buffer(uint32_t chunk, uint32_t index) const {
  return memory_.bytes().data() + buffer_offset(chunk, index);
}

uint32_t ShardTensor::unused_buffer(uint32_t chunk) const {
  for (uint32_t index = 0; index < buffers_; ++index)
    if (uses_[slot(chunk) * buffers_ + index] == 0) return index;
  GRADBUS_CHECK(false);
  return 0;
}

Slice ShardTensor::slice(const ShardAnswer& answer) const {
  return {memory_.region(), buffer_offset(answer.chunk, answer.buffer), answer.bytes};
}

FrameHeader ShardTensor::frame(const ShardAnswer& answer) const {
  const CollectivePlan& plan = plan_.collective;
  FrameHeader header;
  header.kind = static_cast<uint8_t>(FrameKind::kGather);
  header.codec = static_cast<uint8_t>(plan.codec);
  header.dtype = static_cast<uint8_t>(plan.dtype);
  header.op = static_cast<uint8_t>(plan.op);
  header.collective = static_cast<uint8_t>(plan.kind);
  header.source = answer.staleness;
  header.tensor = plan.tensor;
  header.step = answer.round;
  header.chunk = answer.chunk;
  header.length = static_cast<uint32_t>(answer.bytes);
  header.total = plan.count;
  return header;
}

Result<std::unique_ptr<ShardTensor>> make_shard_tensor(const ShardPlan& plan,
                                                       Transport& transport) {
  const bool dense = plan.compression.spec.none();
  if (plan.collective.one_shard) return WholeParameters::create(plan, transport);
  if (plan.mode.holds_parameters())
    return dense ? ParameterTensor::create(plan, transport)
                 : CodedParameters::create(plan, transport);
  if (!dense) return PayloadTensor::create(plan, transport);
  return SummedTensor::create(plan, transport);
}

}  // namespace gradbus
