#include "client_lib/src/rank_channel.h"

#include <sys/eventfd.h>

#include <cmath>

#include "common/errors.h"

namespace gradbus {
namespace {

Status check_channel(const Segment& segment) {
  const ChannelHeader& header = *reinterpret_cast<ChannelHeader*>(segment.at(0));
  if (segment.bytes() < kChannelBytes || header.magic != kChannelMagic)
    return error("S212", "the channel segment does not begin with GBCHAN1");
  if (header.version != kShmLayoutVersion || header.ring_records != kRingRecords)
    return error("V801", "the channel's layout version is " + std::to_string(header.version) +
                             ", this library's is " + std::to_string(kShmLayoutVersion));
  return {};
}

}  // namespace

Status RankChannel::open(std::shared_ptr<Segment> segment, Fd doorbell) {
  GRADBUS_RETURN_IF_ERROR(check_channel(*segment));
  segment_ = std::move(segment);
  doorbell_ = std::move(doorbell);
  trace_.attach(segment_->at(0));
  submissions_ = RingProducer<Submission>(RingMemory::at(segment_->at(kSubmissionRingOffset)));
  completions_ =
      RingConsumer<CompletionRecord>(RingMemory::at(segment_->at(kCompletionRingOffset)));
  return {};
}

// ---- counters

void RankChannel::count_operation(uint64_t bytes) {
  if (!is_open()) return;
  header().operations.fetch_add(1, std::memory_order_relaxed);
  header().bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void RankChannel::count_step(uint64_t step) {
  if (is_open() && step > header().step.load(std::memory_order_relaxed))
    header().step.store(step, std::memory_order_relaxed);
}

// Threads of one process may report at once.
void RankChannel::count_loss(double loss) {
  if (!is_open()) return;
  if (!std::isfinite(loss)) {
    header().losses_not_finite.fetch_add(1, std::memory_order_relaxed);
    return;
  }
  header().loss_sum.fetch_add(loss, std::memory_order_relaxed);
  header().losses.fetch_add(1, std::memory_order_relaxed);
}

void RankChannel::count_wait(Nanos began, Nanos ended) {
  if (!is_open()) return;
  header().wait_ns.fetch_add(static_cast<uint64_t>(ended - began), std::memory_order_relaxed);
  header().last_call_ns.store(static_cast<uint64_t>(ended), std::memory_order_relaxed);
}

uint64_t RankChannel::waited_ns() const {
  return is_open() ? header().wait_ns.load(std::memory_order_relaxed) : 0;
}

// ---- rings

Status RankChannel::submit(const Submission& record, bool needed) {
  {
    const std::lock_guard lock(submission_lock_);
    const Push pushed = overflow_.empty() ? submissions_.push(record) : Push::kFull;
    if (pushed == Push::kCorrupt) return error("S210", "field head of the submission ring");
    if (pushed == Push::kFull && needed) overflow_.push_back(record);
  }
  ring_doorbell();
  return {};
}

void RankChannel::flush() {
  {
    const std::lock_guard lock(submission_lock_);
    if (overflow_.empty()) return;
    size_t pushed = 0;
    while (pushed < overflow_.size() && submissions_.push(overflow_[pushed]) == Push::kDone)
      ++pushed;
    overflow_.erase(overflow_.begin(), overflow_.begin() + static_cast<ptrdiff_t>(pushed));
  }
  ring_doorbell();
}

void RankChannel::ring_doorbell() {
  // The read-modify-write orders the push before this look at `agent_sleeping`.
  if (header().agent_sleeping.fetch_and(0, std::memory_order_seq_cst) != 0)
    eventfd_write(doorbell_.get(), 1);
}

}  // namespace gradbus
