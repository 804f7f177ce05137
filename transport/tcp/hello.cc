#include "transport/tcp/hello.h"

#include <sys/random.h>

#include <span>
#include <string>

#include "common/clock.h"
#include "common/errors.h"
#include "transport/net/local_socket.h"
#include "transport/net/socket.h"

namespace gradbus {
namespace {

constexpr uint32_t kAnswerBit = 1u << 31;
constexpr uint32_t kCountShift = 16;
static_assert(kStreamsMax < (kAnswerBit >> kCountShift), "the count fits below the answer bit");

Status refused(const std::string& why) { return error("D601", "frame field " + why); }

}  // namespace

uint64_t random_nonce() {
  uint64_t nonce = 0;
  // getrandom() lacks entropy only early in boot. Then the clock still makes links of one machine
  // distinct.
  if (getrandom(&nonce, sizeof(nonce), GRND_NONBLOCK) != sizeof(nonce)) {
    nonce = static_cast<uint64_t>(monotonic_now());
  }
  return nonce;
}

FrameHeader pack_greeting(const Greeting& greeting) {
  FrameHeader frame = greeting.hello;
  frame.kind = static_cast<uint8_t>(FrameKind::kHello);
  frame.length = 0;
  frame.step = greeting.nonce;
  frame.chunk =
      greeting.index | (greeting.count << kCountShift) | (greeting.answer ? kAnswerBit : 0);
  seal_frame(frame, {});
  return frame;
}

Result<Greeting> unpack_greeting(const FrameHeader& frame) {
  GRADBUS_RETURN_IF_ERROR(check_frame_header(frame));
  if (frame.kind != static_cast<uint8_t>(FrameKind::kHello) || frame.length != 0) {
    return refused("kind is " + std::to_string(frame.kind) + ", but a link begins with a hello");
  }
  Greeting greeting{frame, frame.step, frame.chunk & 0xffff,
                    (frame.chunk & ~kAnswerBit) >> kCountShift, (frame.chunk & kAnswerBit) != 0};
  if (greeting.count == 0 || greeting.count > kStreamsMax || greeting.index >= greeting.count) {
    return refused("chunk of the hello is not a connection index and count");
  }
  greeting.hello.step = 0;
  greeting.hello.chunk = 0;
  greeting.hello.header_crc = 0;
  return greeting;
}

bool same_link(const Greeting& one, const Greeting& other) {
  return one.nonce == other.nonce && one.count == other.count && one.answer == other.answer &&
         one.hello.job == other.hello.job && one.hello.source == other.hello.source &&
         one.hello.epoch == other.hello.epoch && one.hello.total == other.hello.total;
}

IoResult GreetingReader::read(int fd) {
  return read_missing(fd, std::as_writable_bytes(std::span(&frame_, 1)), filled_);
}

IoResult GreetingReader::read_with_fd(int fd, Fd& passed) {
  return read_missing_with_fd(fd, std::as_writable_bytes(std::span(&frame_, 1)), filled_, passed);
}

}  // namespace gradbus
