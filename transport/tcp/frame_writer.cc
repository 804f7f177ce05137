#include "transport/tcp/frame_writer.h"

#include <cerrno>

namespace gradbus {
namespace {

// Appends [data, data + bytes) without its first `skip` bytes. Returns what is left of `skip`.
size_t append_part(iovec* parts, size_t& count, const void* data, size_t bytes, size_t skip) {
  if (skip >= bytes) return skip - bytes;
  const auto* from = static_cast<const std::byte*>(data) + skip;
  // The channel only reads the bytes.
  parts[count++] = {const_cast<std::byte*>(from), bytes - skip};
  return 0;
}

}  // namespace

void FrameWriter::push(const FrameHeader& header, std::span<const std::byte> payload,
                       uint64_t token) {
  frames_.push({header, payload, token, false});
  queued_bytes_ += sizeof(header) + payload.size();
}

// Fills parts_ from the front of the queue. Returns the number of parts.
size_t FrameWriter::gather() {
  size_t count = 0;
  size_t bytes = 0;
  size_t skip = front_written_;
  for (size_t i = 0; i < frames_.size() && i < kBatchFramesMax; ++i) {
    Outgoing& frame = frames_[i];
    if (i > 0 && bytes + frame.bytes() > kBatchBytesMax) break;
    bytes += frame.bytes();
    if (!frame.sealed) seal_frame(frame.header, frame.payload);
    frame.sealed = true;
    skip = append_part(parts_.data(), count, &frame.header, sizeof(frame.header), skip);
    skip = append_part(parts_.data(), count, frame.payload.data(), frame.payload.size(), skip);
  }
  return count;
}

void FrameWriter::advance(size_t written, LinkEvents events) {
  queued_bytes_ -= written;
  front_written_ += written;
  while (!frames_.empty() && front_written_ >= frames_.front().bytes()) {
    front_written_ -= frames_.front().bytes();
    events.sent(frames_.front().token, Code::kOk);
    frames_.pop();
  }
}

IoResult FrameWriter::write(StreamChannel& to, LinkEvents events) {
  const std::span<const iovec> parts(parts_.data(), gather());
  size_t offered = 0;
  for (const iovec& part : parts) offered += part.iov_len;
  const ssize_t written = to.write(parts);
  if (written < 0) return io_errno(errno);
  advance(static_cast<size_t>(written), events);
  return {static_cast<size_t>(written) < offered ? Io::kBlocked : Io::kMore, {}};
}

void FrameWriter::abandon(LinkEvents events, Code code) {
  for (; !frames_.empty(); frames_.pop()) events.sent(frames_.front().token, code);
  front_written_ = 0;
  queued_bytes_ = 0;
}

}  // namespace gradbus
