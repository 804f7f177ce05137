#include "worker_agent/collectives/all_reduce.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {

// A chunk waits in the ready queue for at most one of its two sends: the result cannot be there
// before the partial sum has gone. So the queue needs one place per chunk.
AllReduce::AllReduce(const CollectivePlan& plan)
    : RingCollective(plan, RingEdges{}, plan.chunks()),
      bytes_(plan.count * dtype_bytes(plan.dtype)),
      chunks_(plan.chunks()) {}

uint32_t AllReduce::place(uint32_t chunk) const {
  const uint32_t agents = plan().agents;
  return (plan().agent_index + agents - 1 - chunk % agents) % agents;
}

void AllReduce::open_round(std::span<const uint64_t>, std::vector<Action>& actions) {
  std::fill(chunks_.begin(), chunks_.end(), Chunk{});
  pieces_open_ = chunks_.size();
  if (plan().count > 0) return;
  chunks_[0].reduced = true;  // no elements: nothing to wait for
  if (starts(0)) pass_partial(0, actions);
}

void AllReduce::on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) {
  if (plan().count == 0) return;
  GRADBUS_CHECK(active_round() != 0 && chunk < chunks_.size() && !chunks_[chunk].reduced);
  chunks_[chunk].reduced = true;
  if (starts(chunk)) {
    pass_partial(chunk, actions);
  } else if (chunks_[chunk].partial_seen) {
    add_partial(chunk, actions);
  }
}

Status AllReduce::check_piece(const FrameHeader& header) const {
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "source", header.source, 0));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, plan().count));
  GRADBUS_RETURN_IF_ERROR(check_extent(header, bytes_));
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::kReduce: return check_partial(header);
    case FrameKind::kGather: return check_result(header);
    default: return refuse(header, "kind is " + std::to_string(header.kind) + ", expected 3 or 4");
  }
}

Status AllReduce::check_partial(const FrameHeader& header) const {
  if (starts(header.chunk))
    return refuse(header, "kind is 3, but the sum of this chunk starts here");
  if (chunks_[header.chunk].partial_seen) return refuse(header, "kind is 3 for the second time");
  return {};
}

Status AllReduce::check_result(const FrameHeader& header) const {
  const Chunk& chunk = chunks_[header.chunk];
  if (owns(header.chunk)) return refuse(header, "kind is 4, but the result is made here");
  if (chunk.result_seen) return refuse(header, "kind is 4 for the second time");
  if (chunk.stage < Stage::kPartialInFlight) {
    return refuse(header, "kind is 4, but the sum has not passed here yet");
  }
  return {};
}

void AllReduce::accept_frame(const FrameHeader& header, uint32_t buffer,
                             std::vector<Action>& actions) {
  Chunk& chunk = chunks_[header.chunk];
  chunk.buffer = buffer;
  if (static_cast<FrameKind>(header.kind) == FrameKind::kReduce) {
    chunk.partial_seen = true;
    if (chunk.reduced) add_partial(header.chunk, actions);
  } else {
    chunk.result_seen = true;
    if (chunk.stage == Stage::kPartialSent) take_result(header.chunk, actions);
  }
}

void AllReduce::pass_partial(uint32_t chunk, std::vector<Action>& actions) {
  chunks_[chunk].stage = Stage::kPartialReady;
  make_ready({.chunk = chunk}, actions);
}

void AllReduce::add_partial(uint32_t chunk, std::vector<Action>& actions) {
  actions.push_back(act(Action::Kind::kAccumulate, chunk));
  release(chunks_[chunk].buffer, actions);
  if (!owns(chunk)) return pass_partial(chunk, actions);
  actions.push_back(act(Action::Kind::kFinalize, chunk));
  chunks_[chunk].stage = Stage::kResultReady;
  make_ready({.chunk = chunk}, actions);
}

void AllReduce::take_result(uint32_t chunk, std::vector<Action>& actions) {
  actions.push_back(act(Action::Kind::kDeliver, chunk));
  release(chunks_[chunk].buffer, actions);
  if (ends(chunk)) return close(chunk);
  chunks_[chunk].stage = Stage::kResultReady;
  make_ready({.chunk = chunk}, actions);
}

Action AllReduce::start_send(Piece piece) {
  Stage& stage = chunks_[piece.chunk].stage;
  const bool result = stage == Stage::kResultReady;
  GRADBUS_CHECK(result || stage == Stage::kPartialReady);
  stage = result ? Stage::kResultInFlight : Stage::kPartialInFlight;
  Action send = act(Action::Kind::kSend, piece.chunk);
  send.frame = result ? FrameKind::kGather : FrameKind::kReduce;
  return send;
}

void AllReduce::finish_send(const Action& send, std::vector<Action>& actions) {
  Chunk& chunk = chunks_.at(send.chunk);
  if (send.frame == FrameKind::kGather) {
    GRADBUS_CHECK(chunk.stage == Stage::kResultInFlight);
    return close(send.chunk);
  }
  GRADBUS_CHECK(chunk.stage == Stage::kPartialInFlight);
  chunk.stage = Stage::kPartialSent;
  if (chunk.result_seen) take_result(send.chunk, actions);
}

void AllReduce::close(uint32_t chunk) {
  chunks_[chunk].stage = Stage::kDone;
  --pieces_open_;
}

Action AllReduce::act(Action::Kind kind, uint32_t chunk) const {
  Action action = chunk_action(kind, {.chunk = chunk}, bytes_);
  action.buffer = chunks_[chunk].buffer;
  action.total = plan().count;
  return action;
}

}  // namespace gradbus
