#include "worker_agent/data/engine_tensor.h"

#include <algorithm>
#include <cmath>

#include "common/errors.h"
#include "proto/frame.h"
#include "worker_agent/compressed/compressed_tensor.h"
#include "worker_agent/rounds/dense_round.h"
#include "worker_agent/rounds/ps_round.h"

namespace gradbus {
namespace {

// The `source` field of a push in a round that makes no step.
uint32_t pull_source_of(const Submission& record) {
  const auto part = static_cast<uint32_t>(record.optimizer_state_part);
  switch (static_cast<PsRequest>(record.ps_request)) {
    case PsRequest::kRead: return kReadOptimizerState + part;
    case PsRequest::kWrite: return kWriteOptimizerState + part;
    default: return kPullOnly;
  }
}

// proto/algorithms.h offers NCCL no other.
NcclType nccl_type(DType dtype) {
  switch (dtype) {
    case DType::kF64: return NcclType::kF64;
    case DType::kF16: return NcclType::kF16;
    case DType::kBF16: return NcclType::kBF16;
    case DType::kI32: return NcclType::kI32;
    case DType::kI64: return NcclType::kI64;
    case DType::kU32: return NcclType::kU32;
    case DType::kU64: return NcclType::kU64;
    default: return NcclType::kF32;
  }
}

}  // namespace

EngineTensor::EngineTensor(const StartJob& job, AddTensor add, RegionId region, const Clock& clock)
    : add_(std::move(add)),
      order_{add_.plan.spec.priority, add_.plan.spec.result_priority},
      region_(region),
      local_reduction_(add_.segment->at(add_.slot.local_reduction_offset),
                       add_.segment->at(add_.slot.data_offset), add_.shape),
      posted_(job.local_ranks.size()),
      local_ranks_(job.local_ranks),
      block_bytes_(job.agent_of_rank.size()),
      reported_(add_.shape.chunks),
      trace_(clock) {
  if (add_.gpu() != nullptr) {
    sum_ = std::make_unique<GpuSum>(add_.gpu()->device);
  } else {
    sum_ = std::make_unique<HostSum>(local_reduction_);
  }
}

Status EngineTensor::open_operations(const StartJob& job, Transport& transport) {
  if (!remote() || (add_.gpu() != nullptr && !add_.gpu()->device->leaves_node())) return {};
  auto exchange = make_exchange(job, transport);
  if (!exchange.ok()) return exchange.status();
  round_ = exchange.take();
  if (add_.plan.ps() != nullptr) round_ = std::make_unique<PsRound>(job, add_, std::move(round_));
  return {};
}

Result<std::unique_ptr<TensorRound>> EngineTensor::make_exchange(const StartJob& job,
                                                                 Transport& transport) {
  if (add_.plan.compression().spec.none())
    return std::unique_ptr<TensorRound>(std::make_unique<DenseRound>(job, add_, region_));
  std::vector<float*> rank_buffers;
  for (uint32_t rank = 0; rank < add_.shape.local_size && add_.gpu() == nullptr; ++rank)
    rank_buffers.push_back(reinterpret_cast<float*>(local_reduction_.rank_buffer(rank)));
  auto compressed = CompressedTensor::create(job, add_, std::move(rank_buffers), trace_, transport);
  if (!compressed.ok()) return compressed.status();
  return std::unique_ptr<TensorRound>(compressed.take());
}

void EngineTensor::take_place_of(EngineTensor& other) {
  other.round_->replaced();
  round_->take_residual_state(*other.round_);
}

NcclChild::Call EngineTensor::nccl_call() const {
  const NcclChild::Place place{add_.gpu()->nccl->rank_buffer, 0};
  return {place, place, add_.shape.count, nccl_type(add_.shape.dtype), nullptr};
}

uint64_t EngineTensor::bytes() const { return add_.shape.count * dtype_bytes(add_.shape.dtype); }

Status EngineTensor::check_request(const Submission& record) const {
  const bool exchanges = record.kind == static_cast<uint32_t>(SubmissionKind::kPosted);
  const auto wrong = [&](const std::string& field) {
    return error("S210", "field " + field + " of a submission, tensor \"" + name() + "\"");
  };
  // On one node an agent only helps to sum.
  if (!remote() && !reduces())
    return wrong("tensor is " + std::to_string(record.tensor) + ", which has nothing to sum");
  if (record.kind == 0 ||
      record.kind > static_cast<uint32_t>(SubmissionKind::kWriteResidualState) ||
      (!exchanges && !round_->has_residual_state()))
    return wrong("kind is " + std::to_string(record.kind));
  if (!exchanges && record.residual_state_part >= kResidualStateParts)
    return wrong("residual_state_part is " + std::to_string(record.residual_state_part));
  if (!(std::isfinite(record.residual_scale) && record.residual_scale >= 0))
    return wrong("residual_scale is " + std::to_string(record.residual_scale));
  if (!(std::isfinite(record.learning_rate) && record.learning_rate >= 0))
    return wrong("learning_rate is " + std::to_string(record.learning_rate));
  const auto pull = static_cast<PsRequest>(record.ps_request);
  if (pull > PsRequest::kWrite) return wrong("ps_request is " + std::to_string(record.ps_request));
  const bool kept = pull == PsRequest::kRead || pull == PsRequest::kWrite;
  if (kept &&
      (record.optimizer_state_part >= kOptimizerStatePartsMax || !round_->has_optimizer_state()))
    return wrong("optimizer_state_part is " + std::to_string(record.optimizer_state_part));
  return {};
}

Status EngineTensor::post(uint32_t local_rank, const Submission& record) {
  const uint64_t round = record.round;
  const uint64_t block_bytes = record.bytes;
  // An honest client posts only after it knows that the last round is over.
  if (round != posted_[local_rank] + 1 || round != begun_ + 1 || running_)
    return error("S210", "field round of a submission is " + std::to_string(round) + ", expected " +
                             std::to_string(begun_ + 1) + ", tensor \"" + name() + "\"");
  if (block_bytes > bytes() || block_bytes % dtype_bytes(add_.shape.dtype) != 0)
    return error("S210", "field bytes of a submission is " + std::to_string(block_bytes) +
                             ", tensor \"" + name() + "\" holds at most " +
                             std::to_string(bytes()) + " in whole elements");
  const auto kind = static_cast<SubmissionKind>(record.kind);
  const double scale = record.residual_scale == 0 ? 1 : record.residual_scale;
  const bool exchanges = kind == SubmissionKind::kPosted;
  RoundRequest request{kind,
                       exchanges ? ResidualStatePart::kResidual
                                 : static_cast<ResidualStatePart>(record.residual_state_part),
                       static_cast<float>(scale),
                       static_cast<float>(record.learning_rate),
                       record.ps_request != 0,
                       pull_source_of(record),
                       exchanges ? record.residual_state_part : 0};
  const bool first = std::ranges::count(posted_, round) == 0;
  if (!first) request.take_warm_up(request_);
  if (!first && !(request == request_))
    return error("O902", "tensor \"" + name() + "\", round " + std::to_string(round) +
                             ": ranks of one node request different operations on its residual, "
                             "or different learning rates");
  request_ = request;
  posted_[local_rank] = round;
  block_bytes_[local_ranks_[local_rank]] = block_bytes;
  return {};
}

uint64_t EngineTensor::ready_round() const {
  const uint64_t next = begun_ + 1;
  const auto posted = [&](uint64_t round) { return round == next; };
  return std::all_of(posted_.begin(), posted_.end(), posted) ? next : 0;
}

bool EngineTensor::ask_for_assistance(uint64_t round) {
  const bool began = assists_left_ > 0;
  if (began && round <= assisted_) return false;
  assisted_ = round;
  assists_left_ = add_.shape.chunks;
  return !began;
}

uint32_t EngineTensor::assist_some() {
  --assists_left_;
  return local_reduction_.reduce_chunks(assisted_, kAgentReducer, 1);
}

Result<std::optional<uint32_t>> EngineTensor::reduce_some() {
  const Result<bool> ready = sum_->chunk_ready(reported_, begun_);
  if (!ready.ok()) return ready.status();
  return ready.value() ? std::optional(reported_++) : std::nullopt;
}

}  // namespace gradbus
