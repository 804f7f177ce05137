#include "client_lib/src/operation.h"

#include <algorithm>

#include "common/errors.h"

namespace gradbus {

Operation::Operation(Session& session, TensorSpec spec, const Buffers& buffers)
    : session_(session), spec_(std::move(spec)), buffers_(buffers) {
  // In place the buffer is ours until the end anyway.
  if (buffers_.input == buffers_.result) buffers_.input_stays = true;
}

Status Operation::begin() {
  session_.waits().submitting_threads().note_current_thread();
  GRADBUS_RETURN_IF_ERROR(session_.socket().failure());
  {
    const std::lock_guard lock(lock_);
    GRADBUS_RETURN_IF_ERROR(take_turn());
    while (step()) {
    }
    if (phase_ == Phase::kDone || phase_ == Phase::kFailed) return failure_;
    const bool entered = phase_ == Phase::kExchange;
    if ((!entered || needs_input_later()) && !buffers_.input_stays) keep_input();
  }
  session_.operations().add(shared_from_this());
  return {};
}

void Operation::keep_input() {
  if (!kept_input_.empty() || input_bytes() == 0) return;
  kept_input_.assign(input(), input() + input_bytes());
  buffers_.input = kept_input_.data();
}

Status Operation::use(TensorSpec spec) {
  spec_ = std::move(spec);
  return take_turn();
}

Status Operation::take_turn() {
  auto registration = session_.tensors().request_turn(spec_, turn_);
  if (!registration.ok()) return registration.status();
  registration_ = registration.take();
  return {};
}

void Operation::advance() {
  const std::lock_guard lock(lock_);
  while (step()) session_.operations().note_progress();
}

bool Operation::over() {
  const std::lock_guard lock(lock_);
  return phase_ == Phase::kDone || phase_ == Phase::kFailed;
}

bool Operation::step() {
  switch (phase_) {
    case Phase::kRegister:
      if (!registration_->settled()) return false;
      if (!registration_->failure.ok()) {
        if (drawn_) session_.operations().unnamed().give_back(drawn_->signature, drawn_->number);
        return fail(registration_->failure);
      }
      phase_ = Phase::kEnter;
      return true;
    case Phase::kEnter: return enter();
    case Phase::kExchange: return leave();
    case Phase::kDone:
    case Phase::kFailed: return false;
  }
  return false;
}

bool Operation::enter() {
  if (const Status broken = session_.socket().failure(); !broken.ok()) return fail(broken);
  if (registration_->turn.load(std::memory_order_acquire) != turn_) return false;
  if (tensor().in_flight() || !ready_to_write()) return false;
  if (const Status started = start_round(); !started.ok()) return fail(started);
  phase_ = Phase::kExchange;
  drawn_.reset();
  return true;
}

bool Operation::leave() {
  if (!attempt_round()) return false;
  if (const Status status = end_round(); !status.ok()) return fail(status);
  if (same_tensor_again()) {
    phase_ = Phase::kEnter;  // and still our turn
    return true;
  }
  Status status;
  const std::shared_ptr<Registration> used = registration_;
  const uint64_t next_turn = turn_ + 1;
  phase_ = last_round(status) ? Phase::kDone : Phase::kRegister;
  // Last, so that the next operation of this name comes behind us at the next round's tensor too.
  used->turn.store(next_turn, std::memory_order_release);
  return status.ok() ? true : fail(status);
}

bool Operation::fail(const Status& status) {
  failure_ = status;
  phase_ = Phase::kFailed;
  return true;
}

Status Operation::test() {
  session_.progress();
  advance();
  const std::lock_guard lock(lock_);
  if (phase_ == Phase::kDone || phase_ == Phase::kFailed) return failure_;
  return Status(Code::kBusy, "\"" + spec_.name + "\" is not finished");
}

Operation::Now Operation::now() {
  const std::lock_guard lock(lock_);
  Now now{phase_, registration_, spec_.name, 0};
  if (phase_ == Phase::kEnter) now.round = tensor().round() + 1;
  if (phase_ == Phase::kExchange) now.round = awaited_round();
  return now;
}

Status Operation::run() {
  GRADBUS_RETURN_IF_ERROR(begin());
  const Status status = wait(session_.options().op_timeout);
  if (!status.ok()) abandon();
  return status;
}

Status Operation::wait(Nanos timeout) {
  const Nanos deadline = monotonic_now() + timeout;
  for (;;) {
    advance();
    if (over()) return failure_;
    const Now before = now();
    const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
    if (!before.registration->settled()) {
      const Status settled = session_.waits().until_settled(*before.registration, left, clock_);
      if (!settled.ok() && !before.registration->settled()) return settled;
      continue;
    }
    // An operation that cannot enter yet waits for an earlier one on the same tensor to leave.
    const auto moved = [&] {
      if (before.phase == Phase::kEnter) session_.operations().advance();
      advance();
      // Several phases may have passed at once: another round or tensor is progress too.
      const Now after = now();
      return after.phase != before.phase || after.round != before.round ||
             after.registration != before.registration;
    };
    GRADBUS_RETURN_IF_ERROR(session_.waits().until(
        before.registration->tensor->local_reduction(), moved,
        {before.name, before.round, clock_, streams(), before.registration->tensor->id()}, left));
  }
}

Status StagedOperation::end_round() {
  GRADBUS_RETURN_IF_ERROR(tensor().take_result());
  copy_out();
  return {};
}

void Operation::abandon() {
  const std::lock_guard lock(lock_);
  buffers_.result = nullptr;
  const bool taken = phase_ == Phase::kExchange && !needs_input_later();
  if (!taken && phase_ != Phase::kDone && phase_ != Phase::kFailed) keep_input();
}

}  // namespace gradbus
