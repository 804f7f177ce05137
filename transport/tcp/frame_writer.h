// The frames that one connection still has to send. One thread owns it; nothing here blocks.
//
// A frame's checksums are computed when it enters a batch, not when it is posted: then the payload
// is read twice in a row, by the checksum and by the kernel, and the second time from the cache.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "proto/frame.h"
#include "transport/bounded_queue.h"
#include "transport/link_events.h"
#include "transport/net/io_result.h"
#include "transport/tcp/stream_channel.h"

namespace gradbus {

class FrameWriter {
 public:
  explicit FrameWriter(uint32_t frames_max) : frames_(frames_max) {}

  // `payload` must stay as it is until kSent.
  void push(const FrameHeader& header, std::span<const std::byte> payload, uint64_t token);

  // One call of the channel for as many frames as a batch holds; each that is wholly written is
  // kSent.
  IoResult write(StreamChannel& to, LinkEvents events);

  // Every frame not yet written ends with `code`.
  void abandon(LinkEvents events, Code code);

  bool empty() const { return frames_.empty(); }
  bool mid_frame() const { return front_written_ > 0; }
  uint64_t queued_bytes() const { return queued_bytes_; }

 private:
  // 32 small frames cost one call; more bytes than this fall out of the second-level cache between
  // checksum and copy. A batch holds one frame at least.
  static constexpr size_t kBatchFramesMax = 32;
  static constexpr size_t kBatchBytesMax = 256 << 10;

  struct Outgoing {
    FrameHeader header;
    std::span<const std::byte> payload;
    uint64_t token = 0;
    bool sealed = false;

    size_t bytes() const { return sizeof(header) + payload.size(); }
  };

  size_t gather();
  void advance(size_t written, LinkEvents events);

  BoundedQueue<Outgoing> frames_;
  size_t front_written_ = 0;  // bytes of the first frame that the kernel has
  uint64_t queued_bytes_ = 0;
  std::array<iovec, 2 * kBatchFramesMax> parts_;
};

}  // namespace gradbus
