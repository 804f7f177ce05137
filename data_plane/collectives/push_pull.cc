#include "data_plane/collectives/push_pull.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {

PushPull::PushPull(const CollectivePlan& plan)
    : RoutedCollective(plan, Credits::kNone),
      cut_(plan.chunk_plan()),
      chunks_(cut_.chunks()),
      lost_(plan.shards) {
  GRADBUS_CHECK(plan.shards >= plan.replicas);
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    const uint32_t first = plan.shard_of(chunk);
    for (uint32_t copy = 0; copy < plan.replicas; ++copy) {
      const uint32_t peer = plan.peer_of_shard(copy == 0 ? first : backup_of(first, plan.shards));
      will_send(peer, 1);
      will_receive(peer);
    }
  }
  close_edges();
}

uint32_t PushPull::shard(uint32_t chunk) const {
  const uint32_t first = plan().shard_of(chunk);
  return plan().peer_of_shard(lost_[first] ? backup_of(first, plan().shards) : first);
}

uint64_t PushPull::bytes_of(uint32_t chunk) const {
  return cut_.range(chunk).elements * dtype_bytes(plan().dtype);
}

// A tensor without elements is never reduced. Its one push reports that this node takes part.
void PushPull::open_round(std::span<const uint64_t>, std::vector<Action>& actions) {
  std::ranges::fill(chunks_, Chunk());
  pieces_open_ = chunks_.size();
  if (plan().count == 0) on_chunk_reduced(0, actions);
}

void PushPull::on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) {
  if (chunks_[chunk].stage != Stage::kOpen) return;  // it has no elements
  push(chunk, actions);
}

void PushPull::push(uint32_t chunk, std::vector<Action>& actions) {
  chunks_[chunk].stage = Stage::kPushReady;
  make_ready(shard(chunk), {.chunk = chunk, .frame = FrameKind::kReduce}, actions);
}

// A push that the transport still has is sent again after its release. A push with an answer here
// is done.
void PushPull::on_peer_lost(uint32_t lost, std::vector<Action>& actions) {
  uint32_t place = 0;
  while (place < plan().shards && plan().peer_of_shard(place) != lost) ++place;
  if (place == plan().shards) return;  // no shard of this tensor
  lost_[place] = true;
  drop_ready(lost);
  if (plan().one_shard && plan().shard_of(0) == place && active_round() != 0)
    forget_answers(actions);
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    if (plan().shard_of(chunk) != place) continue;
    const Stage stage = chunks_[chunk].stage;
    if (stage == Stage::kPushReady || stage == Stage::kPushed) push(chunk, actions);
  }
}

void PushPull::forget_answers(std::vector<Action>& actions) {
  for (Chunk& chunk : chunks_) {
    if (chunk.stage == Stage::kAnswered) {
      release(chunk.answer, actions);
      chunk = {Stage::kPushing};
    } else if (chunk.stage == Stage::kDone) {
      ++pieces_open_;
      chunk = {Stage::kPushed};
    }
  }
}

Action PushPull::start_send(Piece piece) {
  chunks_[piece.chunk].stage = Stage::kPushing;
  return {.kind = Action::Kind::kSend,
          .frame = FrameKind::kReduce,
          .chunk = piece.chunk,
          .round = round(),
          .bytes = bytes_of(piece.chunk),
          .total = plan().count};
}

void PushPull::finish_send(const Action& send, std::vector<Action>& actions) {
  Chunk& chunk = chunks_[send.chunk];
  if (chunk.stage == Stage::kAnswered) return take_answer(send.chunk, chunk.answer, actions);
  if (send.peer != shard(send.chunk)) return push(send.chunk, actions);
  chunk.stage = Stage::kPushed;
}

Status PushPull::check_piece(uint32_t from, const FrameHeader& header) const {
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "kind", header.kind, static_cast<uint64_t>(FrameKind::kGather)));
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "chunk", header.chunk, chunks_.size()));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "sending peer", from, shard(header.chunk)));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, plan().count));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "length", header.length, bytes_of(header.chunk)));
  const Stage stage = chunks_[header.chunk].stage;
  if (stage == Stage::kPushing || stage == Stage::kPushed) return {};
  return refuse_frame(header, "an answer to a chunk that was not pushed, or a second one");
}

void PushPull::accept_frame(uint32_t, const FrameHeader& header, uint32_t buffer,
                            std::vector<Action>& actions) {
  Chunk& chunk = chunks_[header.chunk];
  if (chunk.stage == Stage::kPushed) return take_answer(header.chunk, buffer, actions);
  chunk = {Stage::kAnswered, buffer};
}

void PushPull::take_answer(uint32_t chunk, uint32_t buffer, std::vector<Action>& actions) {
  chunks_[chunk].stage = Stage::kDone;
  --pieces_open_;
  actions.push_back({.kind = Action::Kind::kDeliver,
                     .chunk = chunk,
                     .buffer = buffer,
                     .round = round(),
                     .bytes = bytes_of(chunk),
                     .total = plan().count});
  release(buffer, actions);
}

}  // namespace gradbus
