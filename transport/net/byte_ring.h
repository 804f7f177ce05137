// A stream of bytes from one process to another through shared memory. One writer, one reader,
// which may live in two processes that do not trust each other; each end is used by one thread.
//
//     bytes   0 . . . . . . . . . . . . . . . kRingBytes, a power of two
//                  ^head         ^tail             used = tail - head
//
// `tail` counts bytes ever written and only the writer stores it; `head` counts bytes ever read and
// only the reader stores it: 64-bit counts that never wrap, as in shared_memory/ring.h, which says
// the rest about order, crashes and trust. Here a record is a byte, and both ends may sleep:
//
// A reader that finds nothing says so (reader_waits), looks once more, and sleeps; a writer looks
// at that after it has stored tail. All four accesses are sequentially consistent, so one of the
// two sees the other. A writer without room does the same with writer_waits and head. What wakes
// the other end is not in here: each call says whether it has to be woken.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "common/segment.h"

namespace gradbus {

struct RingWords {
  alignas(128) std::atomic<uint64_t> tail{0};
  alignas(128) std::atomic<uint64_t> head{0};
  alignas(128) std::atomic<uint32_t> reader_waits{0};
  alignas(128) std::atomic<uint32_t> writer_waits{0};
};

// The result of one call. 0 bytes and not corrupt: there was nothing to read, or no room; the other
// end wakes this one when that changes. Corrupt: the other end's count is impossible.
struct RingStep {
  size_t bytes = 0;
  bool wake_other = false;
  bool corrupt = false;
};

class RingWriter {
 public:
  RingWriter(RingWords* words, std::byte* bytes) : words_(words), bytes_(bytes) {}

  // Writes as much of `parts`, in order, as there is room for. If that is less than all, this end
  // now waits.
  RingStep write(std::span<const iovec> parts);

 private:
  size_t room(bool& corrupt);
  void publish(RingStep& step);
  bool has_room_after_all();

  RingWords* words_;
  std::byte* bytes_;
  uint64_t tail_ = 0;
  uint64_t published_ = 0;
  uint64_t head_seen_ = 0;
};

class RingReader {
 public:
  RingReader(RingWords* words, const std::byte* bytes) : words_(words), bytes_(bytes) {}

  // Fills `parts` in order with the available bytes. If that is less than all, this end now waits.
  RingStep read(std::span<const iovec> parts);

 private:
  size_t used(bool& corrupt);
  void hand_back(RingStep& step);

  RingWords* words_;
  const std::byte* bytes_;
  uint64_t head_ = 0;
  uint64_t handed_back_ = 0;
  uint64_t tail_seen_ = 0;
};

// Both directions between two processes, in one segment: its words, then the bytes of each.
struct RingPair {
  static constexpr size_t kRingBytes = 512 << 10;
  static constexpr size_t kSegmentBytes = 4096 + 2 * kRingBytes;

  // `opener`: the end that created the segment. The other end starts from the current words.
  RingPair(std::shared_ptr<Segment> memory, bool opener);

  std::shared_ptr<Segment> segment;
  RingWriter writer;
  RingReader reader;
};

}  // namespace gradbus
