#include "data_plane/collectives/payload_push_pull.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {

PayloadPushPull::PayloadPushPull(const CollectivePlan& plan)
    : RoutedCollective(plan, Credits::kNone),
      posted_(PayloadCut{plan.count}.frames()),
      here_(PayloadCut{plan.count}.frames()) {
  GRADBUS_CHECK(plan.root < plan.shards && plan.chunk_elements == kPayloadChunkBytes);
  GRADBUS_CHECK(plan.shards >= plan.replicas);
  for (uint32_t copy = 0; copy < plan.replicas; ++copy) {
    const uint32_t peer = copy == 0 ? first() : backup();
    will_send(peer, PayloadCut{plan.count}.frames());
    will_receive(peer);
  }
  close_edges();
}

void PayloadPushPull::open_round(std::span<const uint64_t> block_bytes,
                                 std::vector<Action>& actions) {
  push_ = {block_bytes[me()]};
  GRADBUS_CHECK(push_.bytes <= plan().count);
  push_dense_ = plan().parameters && round() == 1;
  answered_ = false;
  unsent_ = push_.frames();
  pieces_open_ = push_.frames() + 1;  // an answer of unknown length counts as one piece
  for (uint32_t frame = 0; frame < push_.frames(); ++frame)
    make_ready(shard(), {.chunk = frame, .frame = FrameKind::kReduce}, actions);
}

// Frames that the transport still has are sent again after it has released them.
void PayloadPushPull::on_peer_lost(uint32_t lost, std::vector<Action>& actions) {
  if (lost != first() || plan().replicas < 2) return;
  lost_ = true;
  if (active_round() == 0) return;
  drop_ready(lost);
  answered_ = false;
  unsent_ = push_.frames();
  pieces_open_ = push_.frames() + 1;
  for (uint32_t frame = 0; frame < push_.frames(); ++frame)
    if (!posted_[frame])
      make_ready(shard(), {.chunk = frame, .frame = FrameKind::kReduce}, actions);
}

Action PayloadPushPull::start_send(Piece piece) {
  --unsent_;
  posted_[piece.chunk] = true;
  return {.kind = Action::Kind::kSend,
          .frame = FrameKind::kReduce,
          .dense = push_dense_,
          .chunk = piece.chunk,
          .source = kPushBlock,
          .round = round(),
          .bytes = push_.bytes_of(piece.chunk),
          .total = push_.bytes};
}

void PayloadPushPull::finish_send(const Action& send, std::vector<Action>& actions) {
  posted_[send.chunk] = false;
  if (send.peer != shard())
    return make_ready(shard(), {.chunk = send.chunk, .frame = FrameKind::kReduce}, actions);
  --pieces_open_;
}

Status PayloadPushPull::check_piece(uint32_t from, const FrameHeader& header) const {
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "sending peer", from, shard()));
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "kind", header.kind, static_cast<uint64_t>(FrameKind::kGather)));
  if (unsent_ > 0) return refuse_frame(header, "an answer to a payload that was not pushed");
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "total", header.total, plan().count + 1));
  if (answered_) {
    GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, answer_.bytes));
    const CodecId codec = answer_dense_ ? CodecId::kDense : plan().codec;
    GRADBUS_RETURN_IF_ERROR(
        expect_field(header, "codec", header.codec, static_cast<uint64_t>(codec)));
  }
  const PayloadCut cut{header.total};
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "chunk", header.chunk, cut.frames()));
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "length", header.length, cut.bytes_of(header.chunk)));
  if (!answered_ || !here_[header.chunk]) return {};
  return refuse_frame(header, "a part of an answer for the second time");
}

void PayloadPushPull::accept_frame(uint32_t, const FrameHeader& header, uint32_t buffer,
                                   std::vector<Action>& actions) {
  if (!answered_) {
    answered_ = true;
    answer_ = {header.total};
    answer_dense_ = header.codec == static_cast<uint8_t>(CodecId::kDense);
    pieces_open_ += answer_.frames() - 1;
    std::fill_n(here_.begin(), answer_.frames(), false);
  }
  here_[header.chunk] = true;
  --pieces_open_;
  actions.push_back({.kind = Action::Kind::kDeliver,
                     .dense = answer_dense_,
                     .chunk = header.chunk,
                     .source = kAnswerBlock,
                     .buffer = buffer,
                     .round = round(),
                     .bytes = header.length,
                     .total = answer_.bytes});
  release(buffer, actions);
}

}  // namespace gradbus
