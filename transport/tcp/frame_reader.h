// Turns the byte stream of one connection into frames in posted receive buffers. One thread owns
// it; nothing here blocks.
//
// Headers and small payloads pass through a read-ahead buffer, so many small frames cost one system
// call. A payload longer than the buffered bytes is read straight into its slot, together with the
// next header in the same call. A header is checked before any field is used. A payload is
// delivered only after it is complete and checked.
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

// A posted receive.
struct Incoming {
  std::span<std::byte> slot;
  uint64_t token = 0;
};

class FrameReader {
 public:
  // One step: a call of the channel, or one piece of a frame from the read-ahead buffer.
  IoResult read(StreamChannel& from, BoundedQueue<Incoming>& receives, LinkEvents events);

  // Whether the next step works without a call of the channel.
  bool step_is_buffered() const;

  // Payload bytes that passed through the read-ahead buffer since the last call.
  size_t take_copied_bytes() { return std::exchange(copied_bytes_, 0); }

  // Ends the receive of a partly read frame with `code`.
  void abandon(LinkEvents events, Code code);

 private:
  static constexpr size_t kReadAheadBytes = 16 << 10;
  // After a payload of this size the next one is probably large too. Then only its header is read
  // ahead, because bytes in the buffer are copied twice.
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
  FrameHeader header_;  // of the frame being read; valid after kHeader
  Incoming incoming_;   // valid in kPayload
  size_t filled_ = 0;   // payload bytes in the slot
  bool large_ = false;  // whether the last payload was large
  size_t begin_ = 0;    // unread bytes of the buffer
  size_t end_ = 0;
  size_t copied_bytes_ = 0;
  std::array<std::byte, kReadAheadBytes> buffer_;
};

}  // namespace gradbus
