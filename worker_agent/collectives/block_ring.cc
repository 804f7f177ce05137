#include "worker_agent/collectives/block_ring.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {

BlockRing::BlockRing(const CollectivePlan& plan, RingEdges edges, uint32_t blocks,
                     uint64_t unit_bytes)
    : RingCollective(plan, edges, size_t{blocks} * plan.chunks()),
      unit_bytes_(unit_bytes),
      chunks_max_(plan.chunks()),
      blocks_(blocks),
      stages_(size_t{blocks} * plan.chunks()) {}

void BlockRing::close_all_blocks() {
  std::fill(blocks_.begin(), blocks_.end(), Block{});
  pieces_open_ = blocks_.size();  // a block not yet heard of counts as one piece
}

void BlockRing::open_own_block(uint32_t source, uint64_t bytes, std::vector<Action>& actions) {
  open_block(source, bytes);
  for (uint32_t chunk = 0; chunk < chunks_of(bytes); ++chunk) pass_on({chunk, source}, actions);
}

void BlockRing::open_block(uint32_t source, uint64_t bytes) {
  const uint32_t chunks = chunks_of(bytes);
  GRADBUS_CHECK(chunks <= chunks_max_ && !blocks_[source].open);
  blocks_[source] = {.open = true, .bytes = bytes};
  std::fill_n(&stage({.source = source}), chunks, Stage::kAwaited);
  pieces_open_ += chunks - 1;
}

Status BlockRing::check_piece(const FrameHeader& header) const {
  constexpr auto kKind = static_cast<uint64_t>(FrameKind::kReduce);
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "kind", header.kind, kKind));
  GRADBUS_RETURN_IF_ERROR(check_block(header));
  const Block& block = blocks_[header.source];
  if (block.open) {  // Its length is fixed: all its frames must agree.
    GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, block.bytes / unit_bytes_));
  }
  GRADBUS_RETURN_IF_ERROR(check_extent(header, header.total * unit_bytes_));
  if (!block.open || stage({header.chunk, header.source}) == Stage::kAwaited) return {};
  return refuse(header,
                "chunk of source " + std::to_string(header.source) + " for the second time");
}

void BlockRing::accept_frame(const FrameHeader& header, uint32_t buffer,
                             std::vector<Action>& actions) {
  if (!blocks_[header.source].open) open_block(header.source, header.total * unit_bytes_);
  const Piece piece{header.chunk, header.source};
  actions.push_back(act(Action::Kind::kDeliver, piece));
  actions.back().buffer = buffer;
  release(buffer, actions);
  if (forwards(piece.source)) {
    pass_on(piece, actions);
  } else {
    close(piece);
  }
}

void BlockRing::pass_on(Piece piece, std::vector<Action>& actions) {
  stage(piece) = Stage::kReady;
  make_ready(piece, actions);
}

Action BlockRing::start_send(Piece piece) {
  GRADBUS_CHECK(stage(piece) == Stage::kReady);
  stage(piece) = Stage::kInFlight;
  return act(Action::Kind::kSend, piece);
}

void BlockRing::finish_send(const Action& send, std::vector<Action>&) {
  GRADBUS_CHECK(send.source < blocks_.size() && send.chunk < chunks_max_);
  GRADBUS_CHECK(stage({send.chunk, send.source}) == Stage::kInFlight);
  close({send.chunk, send.source});
}

void BlockRing::close(Piece piece) {
  stage(piece) = Stage::kDone;
  --pieces_open_;
}

Action BlockRing::act(Action::Kind kind, Piece piece) const {
  const uint64_t bytes = blocks_[piece.source].bytes;
  Action action = chunk_action(kind, piece, bytes);
  action.frame = FrameKind::kReduce;
  action.total = bytes / unit_bytes_;
  return action;
}

}  // namespace gradbus
