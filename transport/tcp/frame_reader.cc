#include "transport/tcp/frame_reader.h"

#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

#include "common/errors.h"

namespace gradbus {
namespace {

Io progress(size_t bytes, size_t asked) { return bytes < asked ? Io::kShort : Io::kMore; }

}  // namespace

IoResult FrameReader::read(StreamChannel& from, BoundedQueue<Incoming>& receives,
                           LinkEvents events) {
  switch (state_) {
    case State::kHeader: return read_header(from);
    case State::kSlot: return take_slot(receives);
    case State::kPayload: return read_payload(from, events);
  }
  return {};
}

bool FrameReader::step_is_buffered() const {
  switch (state_) {
    case State::kHeader: return buffered() >= sizeof(header_);
    case State::kSlot: return true;
    case State::kPayload: return buffered() >= missing_payload().size();
  }
  return false;
}

IoResult FrameReader::read_header(StreamChannel& from) {
  if (buffered() >= sizeof(header_)) {
    std::memcpy(&header_, buffer_.data() + begin_, sizeof(header_));
    if (Status status = check_frame_header(header_); !status.ok()) {
      return io_failed(std::move(status));
    }
    begin_ += sizeof(header_);
    state_ = State::kSlot;
    return {};
  }
  std::memmove(buffer_.data(), buffer_.data() + begin_, buffered());
  end_ -= std::exchange(begin_, 0);
  const iovec part{buffer_.data() + end_, read_ahead_bytes() - end_};
  const ssize_t bytes = from.read({&part, 1});
  if (bytes < 0) return io_errno(errno);
  if (bytes == 0) return ended();
  end_ += static_cast<size_t>(bytes);
  return {progress(static_cast<size_t>(bytes), part.iov_len), {}};
}

IoResult FrameReader::take_slot(BoundedQueue<Incoming>& receives) {
  if (header_.kind == static_cast<uint8_t>(FrameKind::kHello)) {
    return io_failed(error("D601", "frame field kind is 1, a hello in the middle of a link"));
  }
  if (receives.empty()) return {Io::kNoReceive, {}};
  if (receives.front().slot.size() < sizeof(header_) + header_.length) {
    return io_failed(error("D601", "frame field length is " + std::to_string(header_.length) +
                                       ", more than the receive posted for it holds"));
  }
  incoming_ = receives.front();
  receives.pop();
  std::memcpy(incoming_.slot.data(), &header_, sizeof(header_));
  filled_ = 0;
  large_ = header_.length >= kLargePayloadBytes;
  state_ = State::kPayload;
  return {};
}

IoResult FrameReader::read_payload(StreamChannel& from, LinkEvents events) {
  filled_ += take_buffered(missing_payload());
  const std::span<std::byte> missing = missing_payload();
  if (missing.empty()) return deliver(events);
  begin_ = end_ = 0;
  const iovec parts[] = {{missing.data(), missing.size()}, {buffer_.data(), read_ahead_bytes()}};
  const ssize_t result = from.read(parts);
  if (result < 0) return io_errno(errno);
  if (result == 0) return ended();
  const auto bytes = static_cast<size_t>(result);
  filled_ += std::min(bytes, missing.size());
  end_ = bytes - std::min(bytes, missing.size());
  IoResult delivered;
  if (missing_payload().empty()) delivered = deliver(events);
  if (delivered.io == Io::kMore) {
    delivered.io = progress(bytes, parts[0].iov_len + parts[1].iov_len);
  }
  return delivered;
}

IoResult FrameReader::deliver(LinkEvents events) {
  const std::span<const std::byte> payload =
      incoming_.slot.subspan(sizeof(header_), header_.length);
  if (Status status = check_frame_payload(header_, payload); !status.ok()) {
    return io_failed(std::move(status));
  }
  events.received(incoming_.token, Code::kOk, sizeof(header_) + payload.size());
  state_ = State::kHeader;
  return {};
}

IoResult FrameReader::ended() const {
  if (state_ == State::kHeader && buffered() == 0) return {Io::kEnded, {}};
  return io_failed(Status(Code::kPeerLost, "the connection ended in the middle of a frame"));
}

void FrameReader::abandon(LinkEvents events, Code code) {
  if (state_ == State::kPayload) events.received(incoming_.token, code, 0);
  state_ = State::kHeader;
}

std::span<std::byte> FrameReader::missing_payload() const {
  return incoming_.slot.subspan(sizeof(header_) + filled_, header_.length - filled_);
}

size_t FrameReader::take_buffered(std::span<std::byte> target) {
  const size_t bytes = std::min(target.size(), buffered());
  std::memcpy(target.data(), buffer_.data() + begin_, bytes);
  begin_ += bytes;
  copied_bytes_ += bytes;
  return bytes;
}

size_t FrameReader::read_ahead_bytes() const { return large_ ? sizeof(header_) : kReadAheadBytes; }

}  // namespace gradbus
