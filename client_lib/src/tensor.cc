#include "client_lib/src/tensor.h"

#include "client_lib/src/session.h"
#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint64_t kReducedAtOnceBytes =
    16384;  // a few microseconds of start(), which never blocks

}  // namespace

Tensor::Tensor(Session& session, TensorSpec spec, uint32_t id, const Cell& cell)
    : session_(session), spec_(std::move(spec)), id_(id), cell_(cell) {}

std::byte* Tensor::data() {
  if (reduces(spec_.kind)) return cell_.area(session_.local_rank());
  switch (spec_.kind) {
    case CollectiveKind::kAllGather:
    case CollectiveKind::kGather: return cell_.area(session_.rank());
    case CollectiveKind::kAllToAll: return cell_.area(session_.rank() * session_.world_size());
    default: return cell_.area(0);
  }
}

Status Tensor::start(uint64_t bytes) {
  if (in_flight_)
    return error("O905", "tensor \"" + spec_.name + "\" round " + std::to_string(round_));
  GRADBUS_RETURN_IF_ERROR(session_.failure());
  ++round_;
  in_flight_ = true;
  clock_ = {};
  post(bytes);
  return session_.submit(*this, bytes);
}

// The last rank of a small tensor reduces it at once: its peers are woken once, with the result,
// and not first to do the work.
void Tensor::post(uint64_t bytes) {
  const CellShape& shape = cell_.shape();
  const bool at_once = reduces(shape.kind) && !shape.remote && spec_.bytes() <= kReducedAtOnceBytes;
  if (!at_once) return cell_.post(session_.local_rank(), round_, bytes);
  if (cell_.post_quietly(session_.local_rank(), round_, bytes))
    cell_.help(round_, session_.worker(), UINT32_MAX);
}

void Tensor::complete(uint64_t round, Code code) {
  code_.store(code, std::memory_order_relaxed);
  completed_.store(round, std::memory_order_release);
}

bool Tensor::finished() {
  if (!cell_.shape().remote) return attempt_local();
  if (reduces(spec_.kind) && cell_.shape().local_size > 1 && cell_.may_help(round_) &&
      cell_.help(round_, session_.worker(), 1) > 0)
    session_.ring_doorbell();
  session_.flush_submissions();
  session_.drain_completions();
  return completed_.load(std::memory_order_acquire) >= round_;
}

bool Tensor::attempt_local() {
  if (reduces(spec_.kind)) {
    if (cell_.may_help(round_)) cell_.help(round_, session_.worker(), UINT32_MAX);
    return cell_.finished(round_);
  }
  // On one node rank and local rank are the same.
  switch (spec_.kind) {
    case CollectiveKind::kBroadcast:
    case CollectiveKind::kScatter: return cell_.posted(spec_.root, round_);
    case CollectiveKind::kGather: return session_.rank() != spec_.root || cell_.all_posted(round_);
    default: return cell_.all_posted(round_);
  }
}

bool Tensor::attempt() { return !in_flight_ || cell_.failure() != Code::kOk || finished(); }

Status Tensor::wait(Nanos timeout) {
  GRADBUS_RETURN_IF_ERROR(session_.wait_until(
      cell_, [this] { return attempt(); }, {spec_.name, round_, clock_}, timeout));
  return take_result();
}

// A result that came before the failure still counts: the sum is whole.
Status Tensor::take_result() {
  if (!in_flight_) return session_.failure();
  const bool whole = finished() && code_.load(std::memory_order_relaxed) == Code::kOk;
  if (!whole) return session_.why_failed();
  in_flight_ = false;
  return {};
}

}  // namespace gradbus
