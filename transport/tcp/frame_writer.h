// The frames that one connection still has to send. One thread owns it; nothing here blocks.
//
// A frame's checksums are computed when it enters a batch, not when it is posted. The kernel then
// reads the payload right after the checksum did, from the cache.
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

  // `payload` must not change until kSent.
  void push(const FrameHeader& header, std::span<const std::byte> payload, uint64_t token);

  // Makes one channel call for as many frames as fit a batch. Each completely written frame becomes
  // kSent.
  IoResult write(StreamChannel& to, LinkEvents events);

  // Ends every frame that is not yet written with `code`.
  void abandon(LinkEvents events, Code code);

  bool empty() const { return frames_.empty(); }
  bool mid_frame() const { return front_written_ > 0; }
  uint64_t queued_bytes() const { return queued_bytes_; }

 private:
  // 32 small frames cost one call. More bytes than kBatchBytesMax would fall out of the
  // second-level cache between checksum and copy. A batch holds at least one frame.
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
  size_t front_written_ = 0;  // bytes of the first frame that the kernel has accepted
  uint64_t queued_bytes_ = 0;
  std::array<iovec, 2 * kBatchFramesMax> parts_;
};

}  // namespace gradbus
