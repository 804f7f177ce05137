#include "transport/rdma/hello.h"

#include <string>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint32_t kAnswerBit = 1u << 31;
constexpr uint32_t kNumberLimit = 1u << 24;
constexpr uint8_t kMtuMin = 1;
constexpr uint8_t kMtuMax = 5;

std::span<const std::byte> bytes_of(const QueuePairCard& card) {
  return std::as_bytes(std::span(&card, 1));
}

Status refused(const std::string& why) { return error("D601", "frame field " + why); }

}  // namespace

RdmaHello pack_hello(const FrameHeader& hello, const QueuePairCard& card, bool answer) {
  RdmaHello message{hello, card};
  message.frame.kind = static_cast<uint8_t>(FrameKind::kHello);
  message.frame.length = sizeof(card);
  message.frame.step = 0;
  message.frame.chunk = answer ? kAnswerBit : 0;
  seal_frame(message.frame, bytes_of(message.card));
  return message;
}

Status check_hello(RdmaHello& message, bool answer) {
  FrameHeader& frame = message.frame;
  GRADBUS_RETURN_IF_ERROR(check_frame_header(frame));
  if (frame.kind != static_cast<uint8_t>(FrameKind::kHello) ||
      frame.length != sizeof(QueuePairCard)) {
    return refused("kind is " + std::to_string(frame.kind) + " with a length of " +
                   std::to_string(frame.length) + ", but an RDMA link begins with a hello of 32");
  }
  if (frame.chunk != (answer ? kAnswerBit : 0)) return refused("chunk of the hello has no meaning");
  GRADBUS_RETURN_IF_ERROR(check_frame_payload(frame, bytes_of(message.card)));
  const QueuePairCard& card = message.card;
  if (card.queue_pair >= kNumberLimit || card.first_psn >= kNumberLimit || card.mtu < kMtuMin ||
      card.mtu > kMtuMax || card.ethernet > 1) {
    return refused("payload of the hello is not a queue pair");
  }
  frame.chunk = 0;
  frame.length = 0;
  frame.payload_crc = 0;
  frame.header_crc = 0;
  return {};
}

}  // namespace gradbus
