#include "transport/tcp/link.h"

namespace gradbus {
namespace {

// Smaller frames stay on the first idle stream, whose state is in the cache. Larger frames rotate
// over the streams, because the kernel's queues fill alike and are not visible here.
constexpr size_t kRotateBytes = 16 << 10;

bool may_read(const Stream& stream) {
  return !stream.ended && !stream.waits_for_receive &&
         (stream.readable || stream.reader.step_is_buffered());
}

}  // namespace

bool has_work(const Stream& stream) {
  if (stream.role != Stream::Role::kLink || stream.link->state != TcpLink::State::kUp) return false;
  return may_read(stream) || (stream.writable && !stream.writer.empty() && !stream.link->ending);
}

Stream& choose_stream(TcpLink& link, size_t bytes) {
  const size_t count = link.streams.size();
  const size_t first = bytes >= kRotateBytes ? link.next_stream++ % count : 0;
  Stream* best = link.streams[first].get();
  for (size_t i = 1; i < count; ++i) {
    Stream* other = link.streams[(first + i) % count].get();
    if (other->writer.queued_bytes() < best->writer.queued_bytes()) best = other;
  }
  return *best;
}

}  // namespace gradbus
