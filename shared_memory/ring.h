// A bounded queue of fixed-size records between one producer and one consumer, which may live in
// two processes that do not trust each other.
//
//     slot    0   1   2   3   4   5   6   7       capacity 8, a power of two
//                 ^head       ^tail               used = tail - head = 3
//
// `tail` counts records ever pushed and only the producer stores it; `head` counts records ever
// popped and only the consumer stores it. They are 64-bit counts, not indexes: they never wrap, and
// full and empty need neither a flag nor a spare slot.
//
// Memory order. The producer writes the slot, then stores tail; the consumer loads tail with
// acquire, then reads the slot. head works the same way in the other direction and hands the slot
// back. tail is stored sequentially consistent because the producer then looks whether the consumer
// sleeps, and a consumer looks at tail once more after it has said that it will: one of the two
// sees the other.
//
// Crash. A producer that dies before storing tail published nothing; after, a whole record. No lock
// can be left held, so the survivor recovers by dropping the ring.
//
// Trust. The peer can store any value at any time. So capacity and our own count come from private
// memory, never from the segment; used > capacity is a corrupt peer, not an assertion; and a record
// is copied out before anybody looks at it, because it may change between two reads.
//
// Cost. Each side keeps a private copy of the other's count and reloads it only when the ring looks
// full or empty, so a count's cache line crosses cores once per batch, not once per record.
#pragma once

#include <atomic>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "proto/shm_layout.h"

namespace gradbus {

enum class Push : uint8_t { kDone, kFull, kCorrupt };
enum class Pop : uint8_t { kRecord, kEmpty, kCorrupt };

// The location of a ring: control words, then `capacity` records.
struct RingMemory {
  RingControl* control = nullptr;
  std::byte* records = nullptr;

  static RingMemory at(std::byte* base) {
    return {reinterpret_cast<RingControl*>(base), base + sizeof(RingControl)};
  }
};

template <typename Record, uint32_t kCapacity = kRingRecords>
class RingProducer {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == kRecordBytes);
  static_assert((kCapacity & (kCapacity - 1)) == 0);

 public:
  RingProducer() = default;
  explicit RingProducer(RingMemory memory) : memory_(memory) {}

  Push push(const Record& record) {
    if (tail_ - head_seen_ >= kCapacity) {
      head_seen_ = memory_.control->head.count.load(std::memory_order_acquire);
      if (tail_ - head_seen_ > kCapacity) return Push::kCorrupt;
      if (tail_ - head_seen_ == kCapacity) return Push::kFull;
    }
    std::memcpy(memory_.records + (tail_ & (kCapacity - 1)) * kRecordBytes, &record, kRecordBytes);
    memory_.control->tail.count.store(++tail_, std::memory_order_seq_cst);
    return Push::kDone;
  }

 private:
  RingMemory memory_;
  uint64_t tail_ = 0;
  uint64_t head_seen_ = 0;
};

template <typename Record, uint32_t kCapacity = kRingRecords>
class RingConsumer {
  static_assert(std::is_trivially_copyable_v<Record> && sizeof(Record) == kRecordBytes);
  static_assert((kCapacity & (kCapacity - 1)) == 0);

 public:
  RingConsumer() = default;
  explicit RingConsumer(RingMemory memory) : memory_(memory) {}

  Pop pop(Record& record) {
    if (head_ == tail_seen_) {
      tail_seen_ = memory_.control->tail.count.load(std::memory_order_acquire);
      if (head_ == tail_seen_) return Pop::kEmpty;
      if (tail_seen_ - head_ > kCapacity) return corrupt();
    }
    std::memcpy(&record, memory_.records + (head_ & (kCapacity - 1)) * kRecordBytes, kRecordBytes);
    memory_.control->head.count.store(++head_, std::memory_order_release);
    return Pop::kRecord;
  }

  // Takes nothing; for the decision to sleep.
  bool empty() const {
    return head_ == tail_seen_ &&
           memory_.control->tail.count.load(std::memory_order_seq_cst) == head_;
  }

 private:
  Pop corrupt() {
    tail_seen_ = head_;  // so that a later call checks again instead of reading stale slots
    return Pop::kCorrupt;
  }

  RingMemory memory_;
  uint64_t head_ = 0;
  uint64_t tail_seen_ = 0;
};

}  // namespace gradbus
