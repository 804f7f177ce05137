#include "client_lib/src/lanes.h"

#include <algorithm>
#include <cstring>

#include "client_lib/src/session.h"
#include "common/errors.h"

namespace gradbus {

Status Lanes::busy(const char* what) const {
  return error("O905", "tensor \"" + first().spec().name + "\": " + what);
}

void Lanes::clear_but(uint32_t kept) {
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (lane != kept) std::memset(lanes_[lane]->data(), 0, first().spec().bytes());
  steps_ = 0;
  staleness_ = -1;
  draining_ = false;
}

Status Lanes::start(const std::function<Status(Tensor&)>& begin) {
  if (in_flight()) return busy("its last step has not been waited for");
  if (draining_ && outstanding_ > 0) return busy("a drain has not been ended");
  if (draining_) clear_but(current_);
  GRADBUS_RETURN_IF_ERROR(begin(*lanes_[current_]));
  if (outstanding_++ == 0) oldest_ = current_;
  ++steps_;
  waiting_ = Waiting::kStep;
  return {};
}

bool Lanes::attempt() {
  switch (waiting_) {
    case Waiting::kNothing: return true;
    case Waiting::kStep: return due().attempt();
    default: return std::ranges::all_of(lanes_, [](Tensor* lane) { return lane->attempt(); });
  }
}

Status Lanes::wait(Nanos timeout) {
  switch (waiting_) {
    case Waiting::kNothing: return {};
    case Waiting::kStep: return take_step(timeout);
    default: return take_memory(timeout);
  }
}

Status Lanes::take_step(Nanos timeout) {
  if (due().in_flight()) GRADBUS_RETURN_IF_ERROR(due().wait(timeout));
  current_ = next(current_);
  const bool taken = steps_ > delay();
  staleness_ = taken ? delay() + static_cast<int64_t>(lanes_[current_]->staleness()) : -1;
  if (taken) {
    oldest_ = next(oldest_);
    --outstanding_;
  }
  waiting_ = Waiting::kNothing;
  return {};
}

Result<bool> Lanes::drain(Nanos timeout) {
  if (in_flight()) return busy("its last step has not been waited for");
  if (outstanding_ == 0) {
    clear_but(static_cast<uint32_t>(lanes_.size()));
    return false;
  }
  draining_ = true;
  if (lanes_[oldest_]->in_flight()) GRADBUS_RETURN_IF_ERROR(lanes_[oldest_]->wait(timeout));
  current_ = oldest_;
  oldest_ = next(oldest_);
  staleness_ = --outstanding_;
  return true;
}

// ---- memory

Status Lanes::start_memory(SubmissionKind kind, MemoryPart part) {
  if (in_flight()) return busy("its last step has not been waited for");
  if (outstanding_ > 0) return busy("results are under way; drain it first");
  GRADBUS_RETURN_IF_ERROR(lanes_[current_]->start_memory(kind, part));
  clear_but(current_);
  for (uint32_t lane = 0; lane < lanes_.size(); ++lane)
    if (lane != current_) GRADBUS_RETURN_IF_ERROR(lanes_[lane]->start_memory(kind, part));
  waiting_ = kind == SubmissionKind::kReadMemory ? Waiting::kReadMemory : Waiting::kWriteMemory;
  return {};
}

// What was read of all lanes is one share.
Status Lanes::take_memory(Nanos timeout) {
  const Nanos deadline = monotonic_now() + timeout;
  for (Tensor* const lane : lanes_)
    if (lane->in_flight())
      GRADBUS_RETURN_IF_ERROR(lane->wait(std::max<Nanos>(deadline - monotonic_now(), 0)));
  auto* const sum = reinterpret_cast<float*>(data(current_));
  for (uint32_t lane = 0; lane < lanes_.size() && waiting_ == Waiting::kReadMemory; ++lane) {
    const auto* const share = reinterpret_cast<const float*>(data(lane));
    for (uint64_t i = 0; lane != current_ && i < first().spec().count; ++i) sum[i] += share[i];
  }
  clear_but(current_);
  waiting_ = Waiting::kNothing;
  return {};
}

Status Lanes::scale_memory(double factor) {
  for (Tensor* const lane : lanes_) GRADBUS_RETURN_IF_ERROR(lane->scale_memory(factor));
  return {};
}

}  // namespace gradbus
