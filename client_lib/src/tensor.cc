#include "client_lib/src/tensor.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "client_lib/src/session.h"
#include "common/errors.h"
#include "common/policy/sync_mode.h"

namespace gradbus {
namespace {

constexpr uint64_t kReducedAtOnceBytes =
    16384;  // a few microseconds of start(), which never blocks

uint8_t reducer_of(const Session& session) {
  return static_cast<uint8_t>(session.joined().local_rank);
}

}  // namespace

Tensor::Tensor(Session& session, TensorSpec spec, uint32_t id,
               const LocalReduction& local_reduction)
    : session_(session), spec_(std::move(spec)), id_(id), local_reduction_(local_reduction) {}

std::byte* Tensor::data() {
  if (reduces(spec_.kind)) return local_reduction_.rank_buffer(session_.joined().local_rank);
  switch (spec_.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather: return local_reduction_.rank_buffer(session_.rank());
    case CollectiveKind::kAllToAll:
      return local_reduction_.rank_buffer(session_.rank() * session_.world_size());
    default: return local_reduction_.rank_buffer(0);
  }
}

Status Tensor::begin_round() {
  if (in_flight_)
    return error("O905", "tensor \"" + spec_.name + "\" round " + std::to_string(round_));
  GRADBUS_RETURN_IF_ERROR(session_.socket().failure());
  ++round_;
  in_flight_ = true;
  clock_ = {};
  traced_start_ = session_.channel().trace().now();
  traced_posts_ = 0;
  return {};
}

Status Tensor::start_pull() {
  const Result<SyncMode> mode = parse_mode(spec_.mode);
  if (!mode.ok() || !mode.value().holds_parameters())
    return error("O900", "tensor \"" + spec_.name + "\": no shard holds its parameters",
                 "register it with mode ps:async, ps:ssp or ps:quorum");
  return start(0, PsRequest::kParameters);
}

uint32_t Tensor::optimizer_state_parts() const {
  const Result<SyncMode> mode = parse_mode(spec_.mode);
  return mode.ok() ? mode.value().optimizer_state_parts() : 0;
}

Status Tensor::start_optimizer_state(PsRequest kind, uint32_t part) {
  const uint32_t parts = optimizer_state_parts();
  if (part < parts) return start(0, kind, part);
  return error("O900",
               "tensor \"" + spec_.name + "\": shards do not keep part " + std::to_string(part) +
                   "; number of parts: " + std::to_string(parts),
               "call gradbus_optimizer_state_parts(); it is 0 if no shard holds the parameters");
}

Status Tensor::start(uint64_t bytes, PsRequest pull, uint32_t optimizer_state_part) {
  session_.waits().submitting_threads().note_current_thread();
  GRADBUS_RETURN_IF_ERROR(begin_round());
  if (!carried_.empty() && brings_gradient(pull)) add_carried();
  Submission record{};
  record.kind = static_cast<uint32_t>(SubmissionKind::kPosted);
  record.bytes = bytes;
  record.residual_scale = std::exchange(residual_scale_, 1);
  record.residual_state_part = std::exchange(warm_up_round_, 0);
  // Minus zero is a rate of zero, zero is none.
  record.learning_rate = has_rate_ && learning_rate_ == 0 ? -0.0 : learning_rate_;
  record.ps_request = static_cast<uint64_t>(pull);
  record.optimizer_state_part = optimizer_state_part;
  post(bytes);
  return session_.tensors().submit(*this, record);
}

// ---- memory

std::span<float> Tensor::elements() { return {reinterpret_cast<float*>(data()), spec_.count}; }

// Where shards hold the parameters the first round sets them, and a pull brings nothing.
bool Tensor::brings_gradient(PsRequest pull) const {
  if (pull != PsRequest::kNone) return false;
  const Result<SyncMode> mode = parse_mode(spec_.mode);
  return round_ > 1 || !mode.ok() || !mode.value().holds_parameters();
}

// Shares are sums of inputs as the agents see them, after the prescale factor.
void Tensor::add_carried() {
  const std::span<float> input = elements();
  const auto scale = static_cast<float>(1 / spec_.prescale);
  for (size_t i = 0; i < input.size(); ++i) input[i] += scale * carried_[i];
  carried_.clear();
}

void Tensor::take_residual_state_alone(SubmissionKind kind, ResidualStatePart part) {
  const std::span<float> values = elements();
  const bool residual = part == ResidualStatePart::kResidual;
  if (kind == SubmissionKind::kReadResidualState) {
    std::ranges::fill(values, 0.0F);
    if (residual) std::ranges::copy(carried_, values.begin());
  } else if (residual) {
    carried_.assign(values.begin(), values.end());
  }
}

Status Tensor::start_residual_state(SubmissionKind kind, ResidualStatePart part) {
  if (spec_.kind != CollectiveKind::kAllReduce || spec_.dtype != DType::kF32)
    return error("O900", "tensor \"" + spec_.name + "\" has no memory: it is no all-reduce of f32");
  const bool kept_by_agent =
      !spec_.compression.empty() && local_reduction_.shape().remote && spec_.count > 0;
  if (device_rank_buffer_ && !kept_by_agent)
    return error("O900", "tensor \"" + spec_.name + "\" is on a GPU, which keeps no residual",
                 "register it in host memory to keep the residual of its compression");
  if (!kept_by_agent) {
    if (in_flight_)
      return error("O905", "tensor \"" + spec_.name + "\" round " + std::to_string(round_));
    take_residual_state_alone(kind, part);
    return {};
  }
  GRADBUS_RETURN_IF_ERROR(begin_round());
  if (kind == SubmissionKind::kWriteResidualState && spec_.prescale != 1)
    for (float& value : elements()) value /= static_cast<float>(spec_.prescale);
  Submission record{};
  record.kind = static_cast<uint32_t>(kind);
  record.residual_state_part = static_cast<uint64_t>(part);
  post(0);
  return session_.tensors().submit(*this, record);
}

Status Tensor::scale_residual_state(double factor) {
  if (!(std::isfinite(factor) && factor > 0))
    return error("O900", "tensor \"" + spec_.name + "\": its memory cannot be scaled by " +
                             std::to_string(factor));
  residual_scale_ *= factor;
  for (float& value : carried_) value *= static_cast<float>(factor);
  return {};
}

// The last rank of a small tensor reduces it at once: its peers are woken once, with the result,
// and not first to do the work.
void Tensor::post(uint64_t bytes) {
  const LocalReductionShape& shape = local_reduction_.shape();
  const bool at_once = reduces(shape.kind) && !shape.remote && spec_.bytes() <= kReducedAtOnceBytes;
  if (!at_once) return local_reduction_.post(session_.joined().local_rank, round_, bytes);
  if (local_reduction_.post_quietly(session_.joined().local_rank, round_, bytes))
    local_reduction_.reduce_chunks(round_, reducer_of(session_), UINT32_MAX);
}

void Tensor::complete(uint64_t round, Code code, uint64_t staleness) {
  staleness_.store(staleness, std::memory_order_relaxed);
  code_.store(code, std::memory_order_relaxed);
  completed_.store(round, std::memory_order_release);
}

// Chunks that this thread has reduced.
uint32_t Tensor::reduce_chunks(uint32_t chunks_max) {
  if (traced_start_ == 0)
    return local_reduction_.reduce_chunks(round_, reducer_of(session_), chunks_max);
  const Nanos began = monotonic_now();
  if (traced_posts_ == 0) {
    traced_posts_ = began;
    session_.channel().trace().add(TraceKind::kRanks, id_, round_, traced_start_, began);
  }
  const uint32_t chunks = local_reduction_.reduce_chunks(round_, reducer_of(session_), chunks_max);
  if (chunks > 0)
    session_.channel().trace().add(
        TraceKind::kReduce, id_, round_, began, monotonic_now(),
        chunks * local_reduction_.shape().chunk_elements * dtype_bytes(spec_.dtype));
  return chunks;
}

bool Tensor::finished() {
  if (!local_reduction_.shape().remote) return attempt_local();
  if (reduces(spec_.kind) && local_reduction_.shape().local_size > 1 &&
      local_reduction_.may_reduce(round_) && reduce_chunks(1) > 0)
    session_.channel().ring_doorbell();
  session_.channel().flush();
  session_.tensors().take_completions();
  return completed_.load(std::memory_order_acquire) >= round_;
}

bool Tensor::attempt_local() {
  if (reduces(spec_.kind)) {
    if (local_reduction_.may_reduce(round_)) reduce_chunks(UINT32_MAX);
    return local_reduction_.finished(round_);
  }
  // On one node rank and local rank are the same.
  switch (spec_.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter: return local_reduction_.posted(spec_.root, round_);
    case CollectiveKind::kGather:
      return session_.rank() != spec_.root || local_reduction_.all_posted(round_);
    default: return local_reduction_.all_posted(round_);
  }
}

bool Tensor::attempt() {
  return !in_flight_ || local_reduction_.failure() != Code::kOk || finished();
}

Status Tensor::wait(Nanos timeout) {
  GRADBUS_RETURN_IF_ERROR(session_.waits().until(
      local_reduction_, [this] { return attempt(); },
      {.name = spec_.name, .round = round_, .clock = clock_, .tensor = id_}, timeout));
  return take_result();
}

// A result that came before the failure still counts: the sum is whole.
Status Tensor::take_result() {
  if (!in_flight_) return session_.socket().failure();
  const bool whole = finished() && code_.load(std::memory_order_relaxed) == Code::kOk;
  if (!whole) return session_.waits().why_failed();
  in_flight_ = false;
  if (traced_start_ != 0)
    session_.channel().trace().add(TraceKind::kFlight, id_, round_, traced_start_, monotonic_now(),
                                   spec_.bytes());
  return {};
}

}  // namespace gradbus
