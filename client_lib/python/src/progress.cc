// What a Bucket or an Operation does after it was made: start, test, wait, hand out results.
// See session.h.
#include <cstring>
#include <functional>
#include <utility>

#include "errors.h"
#include "guard.h"
#include "session.h"
#include "wait.h"

namespace nb = nanobind;

namespace gradbus::python {
namespace {

constexpr const char* kClosedMeanwhile =
    "GB-O908 SHUT_DOWN: gradbus.shutdown() was called while this operation was in flight | next: "
    "synchronize every operation before the shutdown";

// OK and errors are both "no longer in flight"; only BUSY is not.
bool is_over(gradbus_code code) { return code != GRADBUS_BUSY; }

// A shutdown by another thread, or by a signal handler between two slices, ends the wait.
void wait_for(Attachment& attachment, const std::function<gradbus_code(int64_t)>& wait,
              std::optional<int64_t> timeout_ms) {
  const auto wait_if_open = [&](int64_t ms) {
    const bool was_open = attachment.is_open();
    Outcome outcome = was_open ? outcome_of(wait(ms)) : Outcome{};
    const bool closed = !was_open || (outcome.code != GRADBUS_OK && !attachment.is_open());
    return closed ? Outcome{GRADBUS_CLOSED, kClosedMeanwhile} : outcome;
  };
  throw_unless_ok(wait_in_slices(wait_if_open, timeout_ms.value_or(attachment.op_timeout_ms())));
}

}  // namespace

Bucket::Bucket(std::shared_ptr<Attachment> attachment, gradbus_tensor* tensor, BucketSpec spec)
    : attachment_(std::move(attachment)), tensor_(tensor), spec_(std::move(spec)) {}

void Bucket::start() {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(gradbus_start(tensor_)));
}

void Bucket::start_read_residual_state(int part) {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(
      gradbus_start_read_residual_state(tensor_, static_cast<gradbus_residual_state>(part))));
}

void Bucket::start_write_residual_state(int part) {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(
      gradbus_start_write_residual_state(tensor_, static_cast<gradbus_residual_state>(part))));
}

void Bucket::scale_residual_state(double factor) {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(gradbus_scale_residual_state(tensor_, factor)));
}

void Bucket::continue_warm_up(uint64_t rounds) {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(gradbus_continue_warm_up(tensor_, rounds)));
}

void Bucket::set_learning_rate(double rate) {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(gradbus_set_learning_rate(tensor_, rate)));
}

void Bucket::start_pull() {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(gradbus_start_pull(tensor_)));
}

uint32_t Bucket::optimizer_state_parts() {
  const OpenSession open(attachment_);
  return gradbus_optimizer_state_parts(tensor_);
}

void Bucket::start_read_optimizer_state(uint32_t part) {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(gradbus_start_read_optimizer_state(tensor_, part)));
}

void Bucket::start_write_optimizer_state(uint32_t part) {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(gradbus_start_write_optimizer_state(tensor_, part)));
}

bool Bucket::test() {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  return is_over(gradbus_test(tensor_));
}

void Bucket::wait(std::optional<int64_t> timeout_ms) {
  { const OpenSession open(attachment_); }
  const SoleUse sole(in_use_, spec_.name);
  wait_for(
      *attachment_, [&](int64_t ms) { return gradbus_wait(tensor_, ms); }, timeout_ms);
}

bool Bucket::drain() {
  { const OpenSession open(attachment_); }
  const SoleUse sole(in_use_, spec_.name);
  int32_t found = 0;
  wait_for(
      *attachment_, [&](int64_t ms) { return gradbus_drain(tensor_, ms, &found); }, std::nullopt);
  return found != 0;
}

nb::list Bucket::delay_slots() {
  const OpenSession open(attachment_);
  gradbus_mapping* mapping = nullptr;
  throw_unless_ok(outcome_of(gradbus_tensor_mapping(tensor_, &mapping)));
  const nb::capsule owner(mapping, [](void* held) noexcept {
    gradbus_mapping_free(static_cast<gradbus_mapping*>(held));
  });
  nb::list views;
  for (uint32_t delay_slot = 0; delay_slot <= gradbus_tensor_delay(tensor_); ++delay_slot)
    views.append(
        export_view(gradbus_slot_data(tensor_, delay_slot), spec_.count, spec_.dtype, owner));
  return views;
}

void Bucket::unregister() {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, spec_.name);
  throw_unless_ok(outcome_of(gradbus_unregister(tensor_)));
}

uint32_t Bucket::delay_slot() {
  const OpenSession open(attachment_);
  return gradbus_tensor_slot(tensor_);
}

MemoryTuple to_tuple(const gradbus_device_memory& memory) {
  return {static_cast<int>(memory.sharing), memory.descriptor, memory.bytes,
          nb::bytes(memory.handle, sizeof(memory.handle))};
}

std::optional<std::variant<std::tuple<MemoryTuple, nb::bytes, nb::bytes>, std::string>>
Bucket::device_rank_buffer() {
  const OpenSession open(attachment_);
  gradbus_device_rank_buffer rank_buffer;
  gradbus_device_rank_buffer_init(&rank_buffer);
  const Outcome outcome = outcome_of(gradbus_tensor_device_rank_buffer(tensor_, &rank_buffer));
  if (outcome.code == GRADBUS_INVALID) return std::nullopt;
  if (outcome.code != GRADBUS_OK) return outcome.message;
  gradbus_device_memory memory;
  throw_unless_ok(outcome_of(gradbus_tensor_device_memory(tensor_, &memory)));
  const auto bytes = [](const auto& share) { return nb::bytes(share, sizeof(share)); };
  return std::tuple(to_tuple(memory), bytes(rank_buffer.ready), bytes(rank_buffer.done));
}

int64_t Bucket::staleness() {
  const OpenSession open(attachment_);
  return gradbus_staleness(tensor_);
}

Operation::Operation(std::shared_ptr<Attachment> attachment, gradbus_handle* handle,
                     std::deque<Array> arrays)
    : attachment_(std::move(attachment)), handle_(handle), arrays_(std::move(arrays)) {}

// After shutdown the session has freed the handle already; in a forked child it is the parent's.
Operation::~Operation() {
  const Attachment::Use use(attachment_);
  if (use) gradbus_handle_free(handle_);
}

bool Operation::poll() {
  const OpenSession open(attachment_);
  const SoleUse sole(in_use_, "this operation");
  return is_over(gradbus_handle_test(handle_));
}

void Operation::wait(std::optional<int64_t> timeout_ms) {
  { const OpenSession open(attachment_); }
  const SoleUse sole(in_use_, "this operation");
  wait_for(
      *attachment_, [&](int64_t ms) { return gradbus_handle_wait(handle_, ms); }, timeout_ms);
}

std::vector<uint64_t> Operation::counts(size_t index) {
  const OpenSession open(attachment_);
  const void* data = nullptr;
  uint64_t bytes = 0;
  const uint64_t* counts = nullptr;
  throw_unless_ok(outcome_of(gradbus_handle_output_at(handle_, index, &data, &bytes, &counts)));
  if (counts == nullptr) return {};
  return {counts, counts + gradbus_size(attachment_->session())};
}

void Operation::copy_output(nb::handle into, size_t index) {
  const OpenSession open(attachment_);
  const Array target = array_of(into, Access::kWrite, "the output");
  const void* data = nullptr;
  uint64_t bytes = 0;
  throw_unless_ok(outcome_of(gradbus_handle_output_at(handle_, index, &data, &bytes, nullptr)));
  if (bytes != target.bytes()) throw_error(GRADBUS_INTERNAL, "the size of an output changed");
  if (bytes > 0) std::memcpy(target.data, data, bytes);
}

}  // namespace gradbus::python
