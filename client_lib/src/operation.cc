#include "client_lib/src/operation.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "common/errors.h"

namespace gradbus {
namespace {

// Copies `bytes`; null pointers are fine when there is nothing to copy.
void copy_bytes(void* target, const void* source, uint64_t bytes) {
  if (bytes > 0) std::memcpy(target, source, bytes);
}

class AllReduceOperation final : public Operation {
 public:
  AllReduceOperation(Session& session, const TensorSpec& spec, const void* in, void* out)
      : Operation(session, spec, in, spec.bytes(), out) {}

 protected:
  uint64_t copy_in() override {
    copy_bytes(tensor().data(), input(), input_bytes());
    return 0;
  }
  void copy_out() override {
    if (result() != nullptr) copy_bytes(result(), tensor().data(), input_bytes());
  }
};

class BroadcastOperation final : public Operation {
 public:
  BroadcastOperation(Session& session, const TensorSpec& spec, void* data)
      : Operation(session, spec, data, session.rank() == spec.root ? spec.bytes() : 0, data) {}

 protected:
  bool is_root() { return session().rank() == spec().root; }
  bool ready_to_write() override { return !is_root() || tensor().writable(); }
  uint64_t copy_in() override {
    copy_bytes(tensor().data(), input(), input_bytes());
    return 0;
  }
  void copy_out() override {
    if (!is_root() && result() != nullptr) copy_bytes(result(), tensor().data(), spec().bytes());
    tensor().cell().consume(session().local_rank(), tensor().round());
  }
};

// Two rounds: the lengths, then the blocks through a tensor whose capacity, a power of two, all
// ranks derive from the longest block. So growing inputs register a handful of tensors, not one a
// call.
class AllGatherOperation final : public Operation {
 public:
  AllGatherOperation(Session& session, const TensorSpec& spec, const void* in, uint64_t count)
      : Operation(session, lengths_spec(spec), in, count * dtype_bytes(spec.dtype), nullptr),
        name_(spec.name),
        dtype_(spec.dtype),
        count_(count) {}

 protected:
  bool ready_to_write() override { return tensor().writable(); }

  uint64_t copy_in() override {
    if (!lengths_known()) {
      copy_bytes(tensor().data(), &count_, sizeof(count_));
      return sizeof(count_);
    }
    copy_bytes(tensor().data(), input(), input_bytes());
    return input_bytes();
  }

  void copy_out() override {
    if (lengths_known()) {
      gather_blocks();
    } else {
      gather_lengths();
    }
    tensor().cell().consume(session().local_rank(), tensor().round());
  }

  bool last_round(Status& status) override {
    const uint64_t longest = *std::max_element(counts_.begin(), counts_.end());
    if (blocks_ || longest == 0) return true;
    status = use(blocks_spec(longest));
    return false;
  }

 private:
  static TensorSpec lengths_spec(const TensorSpec& spec) {
    return {spec.name + "#len", 1, DType::kI64, ReduceOp::kNone, CollectiveKind::kAllGather, 0};
  }
  TensorSpec blocks_spec(uint64_t longest) {
    blocks_ = true;
    const uint64_t capacity = std::bit_ceil(std::max<uint64_t>(longest, 64));
    return {name_ + "#" + std::to_string(capacity),
            capacity,
            dtype_,
            ReduceOp::kNone,
            CollectiveKind::kAllGather,
            0};
  }
  bool lengths_known() const { return blocks_; }

  void gather_lengths() {
    counts_.resize(session().world_size());
    for (uint32_t rank = 0; rank < session().world_size(); ++rank)
      copy_bytes(&counts_[rank], tensor().cell().area(rank), sizeof(uint64_t));
  }
  void gather_blocks() {
    const size_t element_bytes = dtype_bytes(dtype_);
    uint64_t total = 0;
    for (const uint64_t count : counts_) total += std::min(count, spec().count) * element_bytes;
    output_.resize(total);
    std::byte* target = output_.data();
    for (uint32_t rank = 0; rank < session().world_size(); ++rank) {
      const uint64_t bytes = std::min(counts_[rank], spec().count) * element_bytes;
      copy_bytes(target, tensor().cell().area(rank), bytes);
      target += bytes;
    }
  }

  const std::string name_;
  const DType dtype_;
  const uint64_t count_;
  bool blocks_ = false;
};

}  // namespace

Operation::Operation(Session& session, TensorSpec spec, const void* input, uint64_t input_bytes,
                     void* result)
    : session_(session),
      spec_(std::move(spec)),
      input_(input),
      input_bytes_(input_bytes),
      result_(result) {}

Status Operation::begin() {
  GRADBUS_RETURN_IF_ERROR(session_.failure());
  {
    const std::lock_guard lock(lock_);
    GRADBUS_RETURN_IF_ERROR(use(spec_));
    while (step()) {
    }
    if (phase_ == Phase::kDone || phase_ == Phase::kFailed) return failure_;
    if (phase_ != Phase::kExchange || spec_.kind == CollectiveKind::kAllGather) {
      const auto* bytes = static_cast<const std::byte*>(input_);
      kept_input_.assign(bytes, bytes + input_bytes_);
      input_ = kept_input_.data();
    }
  }
  session_.add_pending(shared_from_this());
  return {};
}

Status Operation::use(TensorSpec spec) {
  spec_ = std::move(spec);
  auto registration = session_.request(spec_);
  if (!registration.ok()) return registration.status();
  registration_ = registration.take();
  turn_ = registration_->taken.fetch_add(1);
  return {};
}

void Operation::advance() {
  const std::lock_guard lock(lock_);
  while (step()) {
  }
}

bool Operation::over() {
  const std::lock_guard lock(lock_);
  return phase_ == Phase::kDone || phase_ == Phase::kFailed;
}

bool Operation::step() {
  switch (phase_) {
    case Phase::kRegister:
      if (!registration_->settled()) return false;
      if (!registration_->failure.ok()) return fail(registration_->failure);
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
  if (const Status broken = session_.failure(); !broken.ok()) return fail(broken);
  if (registration_->turn.load(std::memory_order_acquire) != turn_) return false;
  if (tensor().in_flight() || !ready_to_write()) return false;
  if (const Status started = tensor().start(copy_in()); !started.ok()) return fail(started);
  phase_ = Phase::kExchange;
  return true;
}

bool Operation::leave() {
  if (!tensor().attempt()) return false;
  if (const Status status = tensor().take_result(); !status.ok()) return fail(status);
  copy_out();
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
  if (phase_ == Phase::kEnter || phase_ == Phase::kExchange)
    now.round = tensor().round() + (phase_ == Phase::kEnter ? 1 : 0);
  return now;
}

Status Operation::wait(Nanos timeout) {
  const Nanos deadline = monotonic_now() + timeout;
  for (;;) {
    advance();
    if (over()) return failure_;
    const Now before = now();
    const Nanos left = std::max<Nanos>(deadline - monotonic_now(), 0);
    if (!before.registration->settled()) {
      const Status settled = session_.wait_registered(*before.registration, left, clock_);
      if (!settled.ok() && !before.registration->settled()) return settled;
      continue;
    }
    // An operation that cannot enter yet waits for an earlier one on the same tensor to leave.
    const auto moved = [&] {
      if (before.phase == Phase::kEnter) session_.advance_operations();
      advance();
      // Several phases may have passed at once: another round or tensor is progress too.
      const Now after = now();
      return after.phase != before.phase || after.round != before.round ||
             after.registration != before.registration;
    };
    GRADBUS_RETURN_IF_ERROR(session_.wait_until(before.registration->tensor->cell(), moved,
                                                {before.name, before.round, clock_}, left));
  }
}

void Operation::abandon() {
  const std::lock_guard lock(lock_);
  result_ = nullptr;
}

std::shared_ptr<Operation> make_all_reduce(Session& session, const TensorSpec& spec, const void* in,
                                           void* out) {
  return std::make_shared<AllReduceOperation>(session, spec, in, out);
}

std::shared_ptr<Operation> make_broadcast(Session& session, const TensorSpec& spec, void* data) {
  return std::make_shared<BroadcastOperation>(session, spec, data);
}

std::shared_ptr<Operation> make_all_gather(Session& session, const TensorSpec& spec, const void* in,
                                           uint64_t count) {
  return std::make_shared<AllGatherOperation>(session, spec, in, count);
}

}  // namespace gradbus
