// A registered tensor in its mode. A synchronous tensor has one slot, and each step waits for its
// own result. A tensor delayed by k has k + 1 slots, each a separate registered tensor, used in
// turn. Step n writes slot n mod (k + 1). It takes the result of step n - k, which is in the slot
// that step n + 1 writes. So no element is copied, and up to k exchanges are in flight while the
// caller computes.
//
// The first k results, and those after a drain, are zeros. One thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "client_lib/src/tensor.h"

namespace gradbus {

class DelayedTensor {
 public:
  // k + 1 tensors whose specs differ only in the name.
  explicit DelayedTensor(std::vector<Tensor*> slots) : slots_(std::move(slots)) {}

  std::span<Tensor* const> all() const { return slots_; }
  // A result is in flight, or was not taken.
  bool busy() const { return in_flight() || outstanding_ > 0; }
  const Tensor& first() const { return *slots_.front(); }
  uint32_t delay() const { return static_cast<uint32_t>(slots_.size()) - 1; }
  // The slot for the next step's input; after wait() or drain() it has the result that was taken.
  uint32_t current() const { return current_; }
  std::byte* data(uint32_t slot) const { return slots_[slot]->data(); }
  bool in_flight() const { return waiting_ != Waiting::kNothing; }
  // The age in steps of the result in the current slot; -1: it is zeros, of no step.
  int64_t staleness() const { return staleness_; }
  void set_learning_rate(double rate) {
    for (Tensor* const slot : slots_) slot->set_learning_rate(rate);
  }

  // BUSY (O905): the last step has not been waited for, or a drain has not been ended.
  Status start() {
    return start([](Tensor& slot) { return slot.start_step(); });
  }
  // As in Tensor.
  Status start_pull() {
    return start([](Tensor& slot) { return slot.start_pull(); });
  }
  Status start_optimizer_state(PsRequest kind, uint32_t part) {
    return start([&](Tensor& slot) { return slot.start_optimizer_state(kind, part); });
  }
  // One non-blocking attempt: true when wait() would not block.
  bool attempt();
  Status wait(Nanos timeout);
  // Ends the exchanges in flight, oldest first. True: the current slot has a result that no step
  // has taken. False: none was left, and all slots are zeros, except memory on a GPU, which keeps
  // the last result.
  Result<bool> drain(Nanos timeout);

  // As in Tensor, for all slots together. BUSY (O905) before the last result has been drained.
  Status start_residual_state(SubmissionKind kind, ResidualStatePart part);
  Status scale_residual_state(double factor);
  // Slots take turns, so each has made its part of these rounds.
  void continue_warm_up(uint64_t rounds);

 private:
  enum class Waiting : uint8_t { kNothing, kStep, kReadResidualState, kWriteResidualState };
  Status start(const std::function<Status(Tensor&)>& begin);
  Tensor& due() { return *slots_[next(current_)]; }
  uint32_t next(uint32_t slot) const { return (slot + 1) % static_cast<uint32_t>(slots_.size()); }
  Status busy(const char* what) const;
  Status take_step(Nanos timeout);
  Status take_residual_state(Nanos timeout);
  void clear_but(uint32_t kept);

  const std::vector<Tensor*> slots_;
  uint32_t current_ = 0;
  uint32_t oldest_ = 0;       // slot of the oldest result that was not taken
  uint32_t outstanding_ = 0;  // started, not taken
  uint64_t steps_ = 0;        // started since the last drain
  int64_t staleness_ = -1;
  bool draining_ = false;
  Waiting waiting_ = Waiting::kNothing;
};

}  // namespace gradbus
