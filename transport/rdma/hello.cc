#include "transport/rdma/hello.h"

#include <string>

#include "common/errors.h"

namespace gradbus {
namespace {

constexpr uint32_t kAnswerBit = 1u << 31;
constexpr uint32_t kNumberLimit = 1u << 24;
constexpr uint8_t kMtuMin = 1;
constexpr uint8_t kMtuMax = 5;

std::span<const std::byte> payload_of(RdmaHello& message) {
  return message.bytes().subspan(sizeof(message.frame));
}

bool is_queue_pair(const QueuePairCard& card) {
  return card.queue_pair < kNumberLimit && card.first_psn < kNumberLimit;
}

bool are_queue_pairs(const RdmaHello& message) {
  for (size_t i = 0; i < message.pairs(); ++i)
    if (!is_queue_pair(message.card_of(i))) return false;
  const QueuePairCard& card = message.card;
  return card.more < kQueuePairsMax && card.mtu >= kMtuMin && card.mtu <= kMtuMax &&
         card.ethernet <= 1;
}

Status refused_hello(const std::string& why) { return error("D601", "frame field " + why); }

}  // namespace

QueuePairCard RdmaHello::card_of(size_t index) const {
  QueuePairCard one = card;
  if (index == 0) return one;
  one.queue_pair = others[index - 1].queue_pair;
  one.first_psn = others[index - 1].first_psn;
  return one;
}

RdmaHello pack_hello(const FrameHeader& hello, std::span<const QueuePairCard> cards, bool answer) {
  RdmaHello message{hello, cards.front(), {}};
  message.card.more = static_cast<uint8_t>(cards.size() - 1);
  for (size_t i = 1; i < cards.size(); ++i)
    message.others[i - 1] = {cards[i].queue_pair, cards[i].first_psn};
  message.frame.kind = static_cast<uint8_t>(FrameKind::kHello);
  message.frame.length = static_cast<uint32_t>(payload_of(message).size());
  message.frame.step = 0;
  message.frame.chunk = answer ? kAnswerBit : 0;
  seal_frame(message.frame, payload_of(message));
  return message;
}

Status check_hello(RdmaHello& message, bool answer) {
  FrameHeader& frame = message.frame;
  GRADBUS_RETURN_IF_ERROR(check_frame_header(frame));
  if (frame.kind != static_cast<uint8_t>(FrameKind::kHello) ||
      frame.length != payload_of(message).size()) {
    return refused_hello(
        "kind is " + std::to_string(frame.kind) + " with a length of " +
        std::to_string(frame.length) +
        ", but an RDMA link begins with a hello of 32 and 8 for each more queue pair");
  }
  if (frame.chunk != (answer ? kAnswerBit : 0))
    return refused_hello("chunk of the hello has no meaning");
  GRADBUS_RETURN_IF_ERROR(check_frame_payload(frame, payload_of(message)));
  if (!are_queue_pairs(message)) return refused_hello("payload of the hello is not a queue pair");
  frame.chunk = 0;
  frame.length = 0;
  frame.payload_crc = 0;
  frame.header_crc = 0;
  return {};
}

}  // namespace gradbus
