// Turns the byte stream of one connection into frames in posted receive buffers. One thread owns
// it; nothing here blocks.
//
// Headers and small payloads come through a read-ahead buffer, so many small frames cost one system
// call. A payload longer than what lies in that buffer is read straight into its slot, together
// with the next header in the same call. A header is checked before any field is used; a payload is
// checked when it is whole and delivered only then.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "proto/frame.h"
#include "transport/bounded_queue.h"
#include "transport/link_events.h"
#include "transport/net/io_result.h"
#include "transport/tcp/stream_channel.h"

namespace gradbus {

// A receive that was posted.
struct Incoming {
  std::span<std::byte> slot;
  uint64_t token = 0;
};

class FrameReader {
 public:
  // One step: a call of the channel, or a piece of a frame taken out of the read-ahead buffer.
  IoResult read(StreamChannel& from, BoundedQueue<Incoming>& receives, LinkEvents events);

  // The next step does not ask the channel.
  bool step_is_buffered() const;

  // Payload bytes that went through the read-ahead buffer since this was last asked.
  size_t take_copied_bytes() { return std::exchange(copied_bytes_, 0); }

  // The receive that a half-read frame holds ends with `code`.
  void abandon(LinkEvents events, Code code);

 private:
  static constexpr size_t kReadAheadBytes = 16 << 10;
  // After a payload of this size the next is probably large too: only its header is read ahead, for
  // what goes through the buffer is copied twice.
  static constexpr size_t kLargePayloadBytes = 4 << 10;

  enum class State : uint8_t { kHeader, kSlot, kPayload };

  IoResult read_header(StreamChannel& from);
  IoResult take_slot(BoundedQueue<Incoming>& receives);
  IoResult read_payload(StreamChannel& from, LinkEvents events);
  IoResult deliver(LinkEvents events);
  IoResult ended() const;

  size_t buffered() const { return end_ - begin_; }
  std::span<std::byte> missing_payload() const;
  size_t take_buffered(std::span<std::byte> target);
  size_t read_ahead_bytes() const;

  State state_ = State::kHeader;
  FrameHeader header_;  // of the frame being read, once state_ is past kHeader
  Incoming incoming_;   // in state kPayload
  size_t filled_ = 0;   // payload bytes in the slot
  bool large_ = false;  // the last payload was
  size_t begin_ = 0;    // unread bytes of the buffer
  size_t end_ = 0;
  size_t copied_bytes_ = 0;
  std::array<std::byte, kReadAheadBytes> buffer_;
};

}  // namespace gradbus
