#include "transport/net/byte_ring.h"

#include <algorithm>
#include <cstring>

namespace gradbus {
namespace {

constexpr size_t kBytes = RingPair::kRingBytes;
static_assert((kBytes & (kBytes - 1)) == 0);
static_assert(2 * sizeof(RingWords) <= 4096);

// The other end sees progress in pieces of this size: it can copy one piece while the next is
// written.
constexpr size_t kPieceBytes = 64 << 10;
// A waiting writer is woken when this much is free.
constexpr size_t kWorthWaking = kBytes / 4;

// The position of count `at`, and how many of `wanted` bytes are contiguous there.
size_t in_a_row(uint64_t at, size_t wanted) {
  return std::min({wanted, kBytes - (at & (kBytes - 1)), kPieceBytes});
}

// Walks through parts in pieces.
class Cursor {
 public:
  explicit Cursor(std::span<const iovec> parts) : parts_(parts) { skip_finished(); }

  bool done() const { return parts_.empty(); }
  std::byte* at() const { return static_cast<std::byte*>(parts_.front().iov_base) + taken_; }
  size_t left() const { return parts_.front().iov_len - taken_; }
  void take(size_t bytes) {
    taken_ += bytes;
    skip_finished();
  }

 private:
  void skip_finished() {
    for (; !parts_.empty() && taken_ == parts_.front().iov_len; taken_ = 0) {
      parts_ = parts_.subspan(1);
    }
  }

  std::span<const iovec> parts_;
  size_t taken_ = 0;
};

}  // namespace

size_t RingWriter::room(bool& corrupt) {
  if (tail_ - head_seen_ == kBytes) {
    head_seen_ = words_->head.load(std::memory_order_seq_cst);
    corrupt = tail_ - head_seen_ > kBytes;
    if (corrupt) head_seen_ = tail_ - kBytes;  // nothing is overwritten
  }
  return kBytes - (tail_ - head_seen_);
}

void RingWriter::publish(RingStep& step) {
  if (published_ == tail_) return;
  words_->tail.store(tail_, std::memory_order_seq_cst);
  published_ = tail_;
  step.wake_other |= words_->reader_waits.load(std::memory_order_seq_cst) != 0;
}

// Called after this end has announced that it waits. Returns false if it must wait.
bool RingWriter::has_room_after_all() {
  words_->writer_waits.store(1, std::memory_order_seq_cst);
  if (tail_ - words_->head.load(std::memory_order_seq_cst) > kBytes - kWorthWaking) return false;
  words_->writer_waits.store(0, std::memory_order_seq_cst);
  return true;
}

RingStep RingWriter::write(std::span<const iovec> parts) {
  RingStep step;
  Cursor cursor(parts);
  while (!cursor.done()) {
    const size_t free = room(step.corrupt);
    if (step.corrupt) return step;
    if (free == 0) {
      publish(step);
      if (has_room_after_all()) continue;
      break;
    }
    const size_t bytes = in_a_row(tail_, std::min(cursor.left(), free));
    std::memcpy(bytes_ + (tail_ & (kBytes - 1)), cursor.at(), bytes);
    cursor.take(bytes);
    tail_ += bytes;
    step.bytes += bytes;
    if (tail_ - published_ >= kPieceBytes) publish(step);
  }
  publish(step);
  // One wake-up for the whole call.
  if (step.wake_other) step.wake_other = words_->reader_waits.exchange(0) != 0;
  return step;
}

size_t RingReader::used(bool& corrupt) {
  if (head_ == tail_seen_) {
    tail_seen_ = words_->tail.load(std::memory_order_seq_cst);
    corrupt = tail_seen_ - head_ > kBytes;
    if (corrupt) tail_seen_ = head_;  // so that only written bytes are read
  }
  return tail_seen_ - head_;
}

void RingReader::hand_back(RingStep& step) {
  if (handed_back_ == head_) return;
  words_->head.store(head_, std::memory_order_seq_cst);
  handed_back_ = head_;
  if (words_->writer_waits.load(std::memory_order_seq_cst) == 0) return;
  const uint64_t written = words_->tail.load(std::memory_order_seq_cst);
  if (written - head_ > kBytes - kWorthWaking) return;
  step.wake_other |= words_->writer_waits.exchange(0) != 0;
}

RingStep RingReader::read(std::span<const iovec> parts) {
  RingStep step;
  Cursor cursor(parts);
  while (!cursor.done()) {
    size_t there = used(step.corrupt);
    if (there == 0 && !step.corrupt) {
      hand_back(step);
      words_->reader_waits.store(1, std::memory_order_seq_cst);
      there = used(step.corrupt);
      if (there > 0) words_->reader_waits.store(0, std::memory_order_seq_cst);
    }
    if (there == 0 || step.corrupt) break;
    const size_t bytes = in_a_row(head_, std::min(cursor.left(), there));
    std::memcpy(cursor.at(), bytes_ + (head_ & (kBytes - 1)), bytes);
    cursor.take(bytes);
    head_ += bytes;
    step.bytes += bytes;
    if (head_ - handed_back_ >= kPieceBytes) hand_back(step);
  }
  hand_back(step);
  return step;
}

RingPair::RingPair(std::shared_ptr<Segment> memory, bool opener)
    : segment(std::move(memory)),
      writer(reinterpret_cast<RingWords*>(segment->at(opener ? 0 : sizeof(RingWords))),
             segment->at(4096 + (opener ? 0 : kRingBytes))),
      reader(reinterpret_cast<RingWords*>(segment->at(opener ? sizeof(RingWords) : 0)),
             segment->at(4096 + (opener ? kRingBytes : 0))) {}

}  // namespace gradbus
