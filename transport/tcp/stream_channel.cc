#include "transport/tcp/stream_channel.h"

#include <linux/magic.h>
#include <sys/socket.h>
#include <sys/vfs.h>

#include <array>
#include <cerrno>

#include "transport/net/local_socket.h"
#include "transport/net/socket.h"

namespace gradbus {
namespace {

constexpr char kSegmentName[] = "gradbus-link";
// A peer rings when this end waits, so it rings once or twice per edge. One that rings without end
// would occupy this thread.
constexpr int kBellReadsMax = 16;

ssize_t fails_with(int failure) {
  errno = failure;
  return -1;
}

// A file of huge pages can lack a page. Access to it raises a signal instead of an error, so a peer
// could end this process with it.
bool is_plain_memory(int fd) {
  struct statfs info {};
  return fstatfs(fd, &info) == 0 && info.f_type == TMPFS_MAGIC;
}

}  // namespace

StreamChannel StreamChannel::to_neighbour(const SocketAddress& address) {
  StreamChannel channel(connect_locally(address), true);
  if (!channel.valid()) return {};
  Result<std::shared_ptr<Segment>> memory = Segment::create(kSegmentName, RingPair::kSegmentBytes);
  if (!memory.ok()) return {};
  channel.opener_ = true;
  channel.rings_.emplace(memory.take(), true);
  return channel;
}

bool StreamChannel::send_greeting(const Greeting& greeting) const {
  const FrameHeader frame = pack_greeting(greeting);
  const auto bytes = std::as_bytes(std::span(&frame, 1));
  return send_with_fd(fd(), bytes, opener_ ? rings_->segment->fd() : -1);
}

IoResult StreamChannel::read_greeting(GreetingReader& reader) {
  if (!local_ || opener_) return reader.read(fd());
  Fd memory;
  const IoResult result = reader.read_with_fd(fd(), memory);
  if (memory.valid() && !rings_) {
    if (!is_plain_memory(memory.get())) return io_errno(EBADMSG);
    Result<std::shared_ptr<Segment>> opened =
        Segment::open(std::move(memory), RingPair::kSegmentBytes);
    if (!opened.ok()) return io_failed(opened.status());
    rings_.emplace(opened.take(), false);
  }
  if (result.io == Io::kMore && !rings_) return io_errno(EBADMSG);
  return result;
}

void StreamChannel::begin() {
  begun_ = true;
  if (rings_) rings_->segment->close_fd();
}

bool StreamChannel::take_bells() {
  if (!rings_ || !begun_) return false;
  std::array<std::byte, 256> bells;
  int reads = 0;
  while (recv(fd(), bells.data(), bells.size(), MSG_DONTWAIT) ==
         static_cast<ssize_t>(bells.size())) {
    if (++reads == kBellReadsMax) {
      flooded_ = true;
      break;
    }
  }
  return true;
}

ssize_t StreamChannel::read(std::span<const iovec> parts) {
  if (flooded_) return fails_with(EBADMSG);
  if (rings_) {
    const ssize_t bytes = after(rings_->reader.read(parts));
    return bytes < 0 && errno == EAGAIN && hung_up_ ? 0 : bytes;
  }
  ssize_t bytes = 0;
  do {
    bytes = readv(fd(), parts.data(), static_cast<int>(parts.size()));
  } while (bytes < 0 && errno == EINTR);
  return bytes;
}

ssize_t StreamChannel::write(std::span<const iovec> parts) {
  if (flooded_) return fails_with(EBADMSG);
  if (rings_) return after(rings_->writer.write(parts));
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // sendmsg only reads the parts
  message.msg_iovlen = parts.size();
  ssize_t bytes = 0;
  do {
    bytes = sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (bytes < 0 && errno == EINTR);
  return bytes;
}

// Rings the bell. The value of the byte has no meaning. If the socket has no room for it, unread
// bells are already there.
ssize_t StreamChannel::after(const RingStep& step) {
  if (step.corrupt) return fails_with(EBADMSG);
  const std::byte bell{1};
  if (step.wake_other) (void)send(fd(), &bell, 1, MSG_NOSIGNAL | MSG_DONTWAIT);
  return step.bytes > 0 ? static_cast<ssize_t>(step.bytes) : fails_with(EAGAIN);
}

}  // namespace gradbus
