#include "client_lib/src/delayed_tensor.h"

#include <algorithm>
#include <cstring>

#include "client_lib/src/session.h"
#include "common/errors.h"

namespace gradbus {

Status DelayedTensor::busy(const char* what) const {
  return error("O905", "tensor \"" + first().spec().name + "\": " + what);
}

// If the elements are on a GPU, the host memory belongs to the agent: its GPU may still read the
// last result there when this rank has it already.
void DelayedTensor::clear_but(uint32_t kept) {
  for (uint32_t slot = 0; slot < slots_.size(); ++slot)
    if (slot != kept && !slots_[slot]->device_rank_buffer())
      std::memset(slots_[slot]->data(), 0, first().spec().bytes());
  steps_ = 0;
  staleness_ = -1;
  draining_ = false;
}

Status DelayedTensor::start(const std::function<Status(Tensor&)>& begin) {
  if (in_flight()) return busy("its last step has not been waited for");
  if (draining_ && outstanding_ > 0) return busy("a drain has not been ended");
  if (draining_) clear_but(current_);
  GRADBUS_RETURN_IF_ERROR(begin(*slots_[current_]));
  if (outstanding_++ == 0) oldest_ = current_;
  ++steps_;
  waiting_ = Waiting::kStep;
  return {};
}

bool DelayedTensor::attempt() {
  switch (waiting_) {
    case Waiting::kNothing: return true;
    case Waiting::kStep: return due().attempt();
    default: return std::ranges::all_of(slots_, [](Tensor* slot) { return slot->attempt(); });
  }
}

Status DelayedTensor::wait(Nanos timeout) {
  switch (waiting_) {
    case Waiting::kNothing: return {};
    case Waiting::kStep: return take_step(timeout);
    default: return take_residual_state(timeout);
  }
}

Status DelayedTensor::take_step(Nanos timeout) {
  if (due().in_flight()) GRADBUS_RETURN_IF_ERROR(due().wait(timeout));
  current_ = next(current_);
  const bool taken = steps_ > delay();
  staleness_ = taken ? delay() + static_cast<int64_t>(slots_[current_]->staleness()) : -1;
  if (taken) {
    oldest_ = next(oldest_);
    --outstanding_;
  }
  waiting_ = Waiting::kNothing;
  return {};
}

Result<bool> DelayedTensor::drain(Nanos timeout) {
  if (in_flight()) return busy("its last step has not been waited for");
  if (outstanding_ == 0) {
    clear_but(static_cast<uint32_t>(slots_.size()));
    return false;
  }
  draining_ = true;
  if (slots_[oldest_]->in_flight()) GRADBUS_RETURN_IF_ERROR(slots_[oldest_]->wait(timeout));
  current_ = oldest_;
  oldest_ = next(oldest_);
  staleness_ = --outstanding_;
  return true;
}

// ---- memory

Status DelayedTensor::start_residual_state(SubmissionKind kind, ResidualStatePart part) {
  if (in_flight()) return busy("its last step has not been waited for");
  if (outstanding_ > 0) return busy("results are under way; drain it first");
  GRADBUS_RETURN_IF_ERROR(slots_[current_]->start_residual_state(kind, part));
  clear_but(current_);
  for (uint32_t slot = 0; slot < slots_.size(); ++slot)
    if (slot != current_) GRADBUS_RETURN_IF_ERROR(slots_[slot]->start_residual_state(kind, part));
  waiting_ = kind == SubmissionKind::kReadResidualState ? Waiting::kReadResidualState
                                                        : Waiting::kWriteResidualState;
  return {};
}

// What was read of all slots is one share.
Status DelayedTensor::take_residual_state(Nanos timeout) {
  const Nanos deadline = monotonic_now() + timeout;
  for (Tensor* const slot : slots_)
    if (slot->in_flight())
      GRADBUS_RETURN_IF_ERROR(slot->wait(std::max<Nanos>(deadline - monotonic_now(), 0)));
  auto* const sum = reinterpret_cast<float*>(data(current_));
  for (uint32_t slot = 0; slot < slots_.size() && waiting_ == Waiting::kReadResidualState; ++slot) {
    const auto* const share = reinterpret_cast<const float*>(data(slot));
    for (uint64_t i = 0; slot != current_ && i < first().spec().count; ++i) sum[i] += share[i];
  }
  clear_but(current_);
  waiting_ = Waiting::kNothing;
  return {};
}

Status DelayedTensor::scale_residual_state(double factor) {
  for (Tensor* const slot : slots_) GRADBUS_RETURN_IF_ERROR(slot->scale_residual_state(factor));
  return {};
}

void DelayedTensor::continue_warm_up(uint64_t rounds) {
  for (Tensor* const slot : slots_) slot->continue_warm_up(rounds / slots_.size());
}

}  // namespace gradbus
