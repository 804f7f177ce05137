#include "data_plane/collectives/tree_reduction.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {

TreeReduction::TreeReduction(const CollectivePlan& plan)
    : RoutedCollective(plan), cut_(plan.chunk_plan()), chunks_(cut_.chunks()) {
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) count_edges(chunk);
  partials_.resize(chunks_.size() * children_max_);
  close_edges();
}

void TreeReduction::count_edges(uint32_t chunk) {
  const Tree in = sums(chunk);
  children_max_ = std::max(children_max_, in.children(me()));
  if (const auto parent = in.parent(me())) will_send(*parent, 1);
  for (uint32_t i = 0; i < in.children(me()); ++i) will_receive(in.child(me(), i));
  if (!shares_result()) return;
  const Tree out = results(chunk);
  if (const auto parent = out.parent(me())) will_receive(*parent);
  for (uint32_t i = 0; i < out.children(me()); ++i) will_send(out.child(me(), i), 1);
}

// ---- senders and receivers

uint32_t TreeReduction::owner(uint32_t chunk) const {
  if (plan().kind == CollectiveKind::kReduce) return plan().agent_of_rank[plan().root];
  if (plan().kind == CollectiveKind::kReduceScatter)
    return plan().agent_of_rank[cut_.range(chunk).shard];
  switch (plan().algorithm) {
    case Algorithm::kChain: return plan().agents - 1;
    case Algorithm::kTree: return 0;
    default: return chunk % plan().agents;
  }
}

Tree TreeReduction::sums(uint32_t chunk) const {
  const bool path = plan().algorithm == Algorithm::kRing || plan().algorithm == Algorithm::kChain;
  return {.shape = path ? Tree::Shape::kBehind : Tree::Shape::kBinomial,
          .root = owner(chunk),
          .agents = plan().agents};
}

Tree TreeReduction::results(uint32_t chunk) const {
  Tree tree = sums(chunk);
  if (plan().algorithm == Algorithm::kRing) tree.shape = Tree::Shape::kAhead;
  return tree;
}

uint32_t TreeReduction::child_index(uint32_t chunk, uint32_t from) const {
  const Tree tree = sums(chunk);
  const uint32_t children = tree.children(me());
  uint32_t i = 0;
  while (i < children && tree.child(me(), i) != from) ++i;
  return i;
}

// ---- a round

void TreeReduction::open_round(std::span<const uint64_t>, std::vector<Action>& actions) {
  std::fill(partials_.begin(), partials_.end(), kAwaited);
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) {
    chunks_[chunk] = {};
    chunks_[chunk].partials_left = static_cast<uint8_t>(sums(chunk).children(me()));
  }
  pieces_open_ = chunks_.size();
  if (plan().count > 0) return;
  for (uint32_t chunk = 0; chunk < chunks_.size(); ++chunk) take_local(chunk, actions);
}

void TreeReduction::on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) {
  if (plan().count == 0) return;
  GRADBUS_CHECK(active_round() != 0 && chunk < chunks_.size() && !chunks_[chunk].reduced);
  take_local(chunk, actions);
  finish_if_done(actions);
}

void TreeReduction::take_local(uint32_t chunk, std::vector<Action>& actions) {
  chunks_[chunk].reduced = true;
  if (chunks_[chunk].partials_left == 0) return pass_sum(chunk, actions);
  const uint32_t children = chunks_[chunk].partials_left;
  for (uint32_t child = 0; child < children; ++child)
    if (partial(chunk, child) < kAdded) add_partial(chunk, child, actions);
}

void TreeReduction::add_partial(uint32_t chunk, uint32_t child, std::vector<Action>& actions) {
  actions.push_back(act(Action::Kind::kAccumulate, chunk));
  actions.back().buffer = partial(chunk, child);
  release(partial(chunk, child), actions);
  partial(chunk, child) = kAdded;
  if (--chunks_[chunk].partials_left == 0) pass_sum(chunk, actions);
}

void TreeReduction::pass_sum(uint32_t chunk, std::vector<Action>& actions) {
  if (const auto parent = sums(chunk).parent(me())) {
    chunks_[chunk].stage = Stage::kPartialReady;
    return make_ready(*parent, {chunk, 0, FrameKind::kReduce}, actions);
  }
  actions.push_back(act(Action::Kind::kFinalize, chunk));
  spread_result(chunk, actions);
}

void TreeReduction::take_result(uint32_t chunk, std::vector<Action>& actions) {
  actions.push_back(act(Action::Kind::kDeliver, chunk));
  actions.back().buffer = chunks_[chunk].result;
  release(chunks_[chunk].result, actions);
  spread_result(chunk, actions);
}

// Sends first to the child with the largest subtree.
void TreeReduction::spread_result(uint32_t chunk, std::vector<Action>& actions) {
  const Tree tree = results(chunk);
  const uint32_t children = shares_result() ? tree.children(me()) : 0;
  if (children == 0) return close(chunk);
  chunks_[chunk].stage = Stage::kResultReady;
  chunks_[chunk].sends_left = static_cast<uint8_t>(children);
  for (uint32_t i = children; i-- > 0;)
    make_ready(tree.child(me(), i), {chunk, 0, FrameKind::kGather}, actions);
}

// ---- frames

Status TreeReduction::check_piece(uint32_t from, const FrameHeader& header) const {
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "source", header.source, 0));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, plan().count));
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "chunk", header.chunk, chunks_.size()));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "length", header.length, bytes_of(header.chunk)));
  switch (static_cast<FrameKind>(header.kind)) {
    case FrameKind::kReduce: return check_partial(from, header);
    case FrameKind::kGather: return check_result(from, header);
    default:
      return refuse_frame(header, "kind is " + std::to_string(header.kind) + ", expected 3 or 4");
  }
}

Status TreeReduction::check_partial(uint32_t from, const FrameHeader& header) const {
  const uint32_t children = sums(header.chunk).children(me());
  if (children == 0)
    return refuse_frame(header, "kind is 3, but the sum of this chunk starts here");
  const uint32_t child = child_index(header.chunk, from);
  if (child == children)
    return refuse_frame(header, "kind is 3, but agent " + std::to_string(from) +
                                    " sends its sum of this chunk to another one");
  if (partials_[size_t{header.chunk} * children_max_ + child] != kAwaited)
    return refuse_frame(header, "kind is 3 for the second time");
  return {};
}

Status TreeReduction::check_result(uint32_t from, const FrameHeader& header) const {
  const Chunk& chunk = chunks_[header.chunk];
  if (!shares_result()) return refuse_frame(header, "kind is 4, but the result goes nowhere");
  if (owns(header.chunk)) return refuse_frame(header, "kind is 4, but the result is made here");
  if (results(header.chunk).parent(me()) != from)
    return refuse_frame(header, "kind is 4, but agent " + std::to_string(from) +
                                    " does not pass the result of this chunk on to here");
  if (chunk.result_seen) return refuse_frame(header, "kind is 4 for the second time");
  if (chunk.stage < Stage::kPartialInFlight)
    return refuse_frame(header, "kind is 4, but the sum has not passed here yet");
  return {};
}

void TreeReduction::accept_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                                 std::vector<Action>& actions) {
  Chunk& chunk = chunks_[header.chunk];
  if (static_cast<FrameKind>(header.kind) == FrameKind::kReduce) {
    const uint32_t child = child_index(header.chunk, from);
    partial(header.chunk, child) = buffer;
    if (chunk.reduced) add_partial(header.chunk, child, actions);
  } else {
    chunk.result_seen = true;
    chunk.result = buffer;
    if (chunk.stage == Stage::kPartialSent) take_result(header.chunk, actions);
  }
}

Action TreeReduction::start_send(Piece piece) {
  Stage& stage = chunks_[piece.chunk].stage;
  if (piece.frame == FrameKind::kReduce) {
    GRADBUS_CHECK(stage == Stage::kPartialReady);
    stage = Stage::kPartialInFlight;
  } else {
    GRADBUS_CHECK(stage == Stage::kResultReady);
  }
  Action send = act(Action::Kind::kSend, piece.chunk);
  send.frame = piece.frame;
  return send;
}

void TreeReduction::finish_send(const Action& send, std::vector<Action>& actions) {
  Chunk& chunk = chunks_.at(send.chunk);
  if (send.frame == FrameKind::kGather) {
    GRADBUS_CHECK(chunk.stage == Stage::kResultReady && chunk.sends_left > 0);
    if (--chunk.sends_left == 0) close(send.chunk);
    return;
  }
  GRADBUS_CHECK(chunk.stage == Stage::kPartialInFlight);
  if (!shares_result()) return close(send.chunk);
  chunk.stage = Stage::kPartialSent;
  if (chunk.result_seen) take_result(send.chunk, actions);
}

void TreeReduction::close(uint32_t chunk) {
  chunks_[chunk].stage = Stage::kDone;
  --pieces_open_;
}

Action TreeReduction::act(Action::Kind kind, uint32_t chunk) const {
  return {.kind = kind,
          .chunk = chunk,
          .round = round(),
          .bytes = bytes_of(chunk),
          .total = plan().count};
}

}  // namespace gradbus
