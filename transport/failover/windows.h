// The two ends of a sequence of frames that may be sent more than once: the sent frames that are
// not yet known to be received, and the received ones. No clock, no link; one thread owns each.
//
// Memory is reserved at construction; nothing is allocated later.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transport/bounded_queue.h"
#include "transport/failover/control.h"
#include "transport/link_events.h"
#include "transport/transport.h"

namespace gradbus {

// Frames that were posted and have not ended. A frame ends when the peer has received it and no
// path uses its bytes.
class SendWindow {
 public:
  explicit SendWindow(uint32_t posts_max);

  bool full() const { return next_ - oldest_ == slots_.size(); }
  void push(const FrameHeader& header, Slice payload, uint64_t token);

  // The first frame that no path has, if there is one.
  struct Frame {
    uint32_t sequence = 0;
    const FrameHeader* header = nullptr;
    Slice payload;
  };
  std::optional<Frame> waiting();
  // A path has accepted the frame that waiting() returned.
  void posted();

  // The path has released the bytes of frame `sequence`.
  void returned(uint32_t sequence, LinkEvents events);
  // The peer has received these. Returns false when it claims an impossible frame.
  bool taken(const TakenFrames& frames, LinkEvents events);
  // No path uses any bytes: frames that the peer has not received wait again, in order.
  void rewind();
  void end_all(LinkEvents events, Code code);

 private:
  struct Slot {
    FrameHeader header;
    Slice payload;
    uint64_t token = 0;
    bool used = false;
    bool posted = false;  // a path uses its bytes
    bool sent = false;    // a path has had it since the peer's latest report
    bool taken = false;
  };
  Slot& slot(uint32_t sequence) { return slots_[sequence & (slots_.size() - 1)]; }
  bool take(uint32_t sequence, LinkEvents events);
  void end(Slot& slot, LinkEvents events);

  std::vector<Slot> slots_;  // by sequence number, a power of two of them
  BoundedQueue<uint32_t> waiting_;
  uint32_t oldest_ = 0;
  uint32_t next_ = 0;
};

// The received frames of the peer.
class ReceiveWindow {
 public:
  enum class Verdict : uint8_t { kNew, kTakenBefore, kImpossible };

  ReceiveWindow() : bits_(kFrameWindow / 64) {}
  Verdict take(uint32_t sequence);
  TakenFrames taken() const;

 private:
  bool bit(uint32_t sequence) const;

  uint32_t next_ = 0;
  std::vector<uint64_t> bits_;  // of frames next_ to next_ + kFrameWindow, by number
};

// Receives that were posted and have not ended, with a queue of those that no path has.
class ReceivePosts {
 public:
  struct Post {
    Slice into;
    std::byte* bytes = nullptr;
    uint64_t token = 0;
    bool used = false;
  };
  explicit ReceivePosts(uint32_t posts_max);

  void push(Slice into, std::byte* bytes, uint64_t token);
  const Post& operator[](uint32_t index) const { return posts_[index]; }
  BoundedQueue<uint32_t>& waiting() { return waiting_; }
  void remove(uint32_t index);
  void end_all(LinkEvents events, Code code);

 private:
  std::vector<Post> posts_;
  std::vector<uint32_t> free_;
  BoundedQueue<uint32_t> waiting_;
};

}  // namespace gradbus
