#include "transport/failover/windows.h"

#include <bit>

namespace gradbus {
namespace {

constexpr uint32_t kWords = kFrameWindow / 64;

}  // namespace

// ---- sent

SendWindow::SendWindow(uint32_t posts_max)
    : slots_(std::bit_ceil(posts_max)), waiting_(slots_.size()) {}

void SendWindow::push(const FrameHeader& header, Slice payload, uint64_t token) {
  slot(next_) = {.header = header, .payload = payload, .token = token, .used = true};
  slot(next_).header.kind |= kSequencedFrame;
  slot(next_).header.magic = next_;
  waiting_.push(next_++);
}

std::optional<SendWindow::Frame> SendWindow::waiting() {
  if (waiting_.empty()) return std::nullopt;
  const Slot& first = slot(waiting_.front());
  return Frame{waiting_.front(), &first.header, first.payload};
}

void SendWindow::posted() {
  Slot& first = slot(waiting_.front());
  first.posted = first.sent = true;
  waiting_.pop();
}

void SendWindow::returned(uint32_t sequence, LinkEvents events) {
  Slot& back = slot(sequence);
  back.posted = false;
  if (back.taken) end(back, events);
}

bool SendWindow::taken(const TakenFrames& frames, LinkEvents events) {
  const uint32_t sent = next_ - oldest_;
  const uint32_t below = frames.next - oldest_;
  if (below > kFrameWindow) return static_cast<int32_t>(below) < 0;  // older than what is known
  if (below > sent) return false;
  for (uint32_t sequence = oldest_; sequence != frames.next; ++sequence)
    if (!take(sequence, events)) return false;
  for (uint32_t word = 0; word < frames.beyond.size(); ++word) {
    for (uint64_t bits = frames.beyond[word]; bits != 0; bits &= bits - 1) {
      const uint32_t ahead = word * 64 + static_cast<uint32_t>(std::countr_zero(bits));
      if (below + ahead >= sent || !take(frames.next + ahead, events)) return false;
    }
  }
  return true;
}

bool SendWindow::take(uint32_t sequence, LinkEvents events) {
  if (static_cast<int32_t>(sequence - oldest_) < 0) return true;  // it ended while this was read
  Slot& one = slot(sequence);
  if (!one.used || one.taken) return true;
  if (!one.sent) return false;
  one.taken = true;
  if (!one.posted) end(one, events);
  return true;
}

void SendWindow::end(Slot& slot_of_it, LinkEvents events) {
  slot_of_it.used = false;
  events.sent(slot_of_it.token, Code::kOk);
  while (oldest_ != next_ && !slot(oldest_).used) ++oldest_;
}

void SendWindow::rewind() {
  while (!waiting_.empty()) waiting_.pop();
  for (uint32_t sequence = oldest_; sequence != next_; ++sequence) {
    Slot& one = slot(sequence);
    one.sent = false;
    if (one.used && !one.taken) waiting_.push(sequence);
  }
}

void SendWindow::end_all(LinkEvents events, Code code) {
  while (!waiting_.empty()) waiting_.pop();
  for (; oldest_ != next_; ++oldest_) {
    if (slot(oldest_).used) events.sent(slot(oldest_).token, code);
    slot(oldest_).used = false;
  }
}

// ---- taken

bool ReceiveWindow::bit(uint32_t sequence) const {
  return (bits_[sequence / 64 % kWords] >> (sequence % 64) & 1) != 0;
}

ReceiveWindow::Verdict ReceiveWindow::take(uint32_t sequence) {
  const uint32_t ahead = sequence - next_;
  if (static_cast<int32_t>(ahead) < 0) return Verdict::kTakenBefore;
  if (ahead >= kFrameWindow) return Verdict::kImpossible;
  if (bit(sequence)) return Verdict::kTakenBefore;
  bits_[sequence / 64 % kWords] |= uint64_t{1} << (sequence % 64);
  for (; bit(next_); ++next_) bits_[next_ / 64 % kWords] &= ~(uint64_t{1} << (next_ % 64));
  return Verdict::kNew;
}

TakenFrames ReceiveWindow::taken() const {
  TakenFrames frames;
  frames.next = next_;
  const uint32_t shift = next_ % 64;
  for (uint32_t i = 0; i < frames.beyond.size(); ++i) {
    const uint32_t word = next_ / 64 + i;
    frames.beyond[i] = bits_[word % kWords] >> shift;
    if (shift != 0) frames.beyond[i] |= bits_[(word + 1) % kWords] << (64 - shift);
  }
  return frames;
}

// ---- receives

ReceivePosts::ReceivePosts(uint32_t posts_max) : posts_(posts_max), waiting_(posts_max) {
  free_.reserve(posts_max);
  for (uint32_t index = posts_max; index > 0; --index) free_.push_back(index - 1);
}

void ReceivePosts::push(Slice into, std::byte* bytes, uint64_t token) {
  const uint32_t index = free_.back();
  free_.pop_back();
  posts_[index] = {into, bytes, token, true};
  waiting_.push(index);
}

void ReceivePosts::remove(uint32_t index) {
  posts_[index].used = false;
  free_.push_back(index);
}

void ReceivePosts::end_all(LinkEvents events, Code code) {
  while (!waiting_.empty()) waiting_.pop();
  for (uint32_t index = 0; index < posts_.size(); ++index) {
    if (!posts_[index].used) continue;
    events.received(posts_[index].token, code, 0);
    remove(index);
  }
}

}  // namespace gradbus
