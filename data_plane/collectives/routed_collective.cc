#include "data_plane/collectives/routed_collective.h"

#include <algorithm>

#include "common/check.h"

namespace gradbus {

RoutedCollective::RoutedCollective(const CollectivePlan& plan, Credits credits)
    : plan_(plan), credits_(credits), edge_of_peer_(plan.peers(), kNoEdge), source_(plan.peers()) {
  GRADBUS_CHECK(plan.peers() >= 2 && plan.agents <= kRanksMax && plan.agent_index < plan.agents);
  GRADBUS_CHECK(plan.chunk_elements >= 1 &&
                plan.chunk_elements <= kFramePayloadBytesMax / dtype_bytes(plan.dtype));
}

// ---- edges

void RoutedCollective::will_send(uint32_t peer, uint32_t pieces) {
  GRADBUS_CHECK(peer != me() && peer < plan_.peers());
  if (edge_to(peer) == nullptr) {
    edge_of_peer_[peer] = static_cast<uint16_t>(edges_.size());
    edges_.emplace_back().peer = peer;
    if (credits_ == Credits::kNone) edges_.back().credited = UINT64_MAX;
  }
  edge_to(peer)->pieces_max += pieces;
}

void RoutedCollective::will_receive(uint32_t peer) {
  GRADBUS_CHECK(peer != me() && peer < plan_.peers());
  if (source_[peer]) return;
  source_[peer] = true;
  needs_.sources.push_back(peer);
}

// One event may send on every edge. It may also add, finalize, and release the buffers of a chunk
// of a binomial tree (one per child), or give a credit to every source.
void RoutedCollective::close_edges() {
  constexpr size_t kChildrenMax = 12;  // in a binomial tree of kRanksMax agents
  needs_.actions_max = 2 * kChildrenMax + 8 + needs_.sources.size();
  for (Edge& edge : edges_) {
    edge.ready.reserve(edge.pieces_max);
    needs_.targets.push_back({edge.peer, std::min(edge.pieces_max, kSendsInFlightMax)});
    needs_.actions_max += needs_.targets.back().sends_max;
  }
}

RoutedCollective::Edge* RoutedCollective::edge_to(uint32_t peer) {
  const uint16_t index = peer < edge_of_peer_.size() ? edge_of_peer_[peer] : kNoEdge;
  return index == kNoEdge ? nullptr : &edges_[index];
}

bool RoutedCollective::receives_from(uint32_t peer) const {
  return peer < source_.size() && source_[peer];
}

// ---- events

void RoutedCollective::begin(uint64_t round, std::span<const uint64_t> block_bytes,
                             std::vector<Action>& actions) {
  GRADBUS_CHECK(!active_ && round == begun_ + 1);
  begun_ = round;
  active_ = true;
  for (const uint32_t peer :
       credits_ == Credits::kNone ? std::span<const uint32_t>() : needs_.sources)
    actions.push_back({.kind = Action::Kind::kCredit, .peer = peer, .round = round});
  open_round(block_bytes, actions);
}

void RoutedCollective::on_chunk_reduced(uint32_t, std::vector<Action>&) {
  GRADBUS_CHECK(reduces(plan_.kind));
}

Status RoutedCollective::on_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                                  std::vector<Action>& actions) {
  if (!receives_from(from)) return refuse_frame(header, "no data ever comes over this link");
  if (!active_) return refuse_frame(header, "no round has begun here");
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "step", header.step, begun_));
  GRADBUS_RETURN_IF_ERROR(check_signature(plan_, header));
  GRADBUS_RETURN_IF_ERROR(check_piece(from, header));
  accept_frame(from, header, buffer, actions);
  finish_if_done(actions);
  return {};
}

Status RoutedCollective::on_credit(uint32_t from, uint64_t round, std::vector<Action>& actions) {
  Edge* edge = edge_to(from);
  if (edge == nullptr) return refuse_credit(round, ", but nothing is ever sent on this link");
  if (credits_ == Credits::kNone) return refuse_credit(round, ", but nothing here waits for one");
  if (round != edge->credited + 1 || round > begun_ + 1) {
    return refuse_credit(round, " after the one for round " + std::to_string(edge->credited) +
                                    ", while this agent is in round " + std::to_string(begun_));
  }
  edge->credited = round;
  send_ready(*edge, actions);
  return {};
}

void RoutedCollective::on_sent(const Action& send, std::vector<Action>& actions) {
  Edge* edge = edge_to(send.peer);
  GRADBUS_CHECK(active_ && edge != nullptr && edge->in_flight > 0);
  --edge->in_flight;
  finish_send(send, actions);
  send_ready(*edge, actions);
  finish_if_done(actions);
}

void RoutedCollective::make_ready(uint32_t peer, Piece piece, std::vector<Action>& actions) {
  Edge* edge = edge_to(peer);
  GRADBUS_CHECK(edge != nullptr);
  edge->ready.push(piece);
  send_ready(*edge, actions);
}

void RoutedCollective::drop_ready(uint32_t peer) {
  Edge* edge = edge_to(peer);
  while (edge != nullptr && !edge->ready.empty()) edge->ready.pop();
}

void RoutedCollective::send_ready(Edge& edge, std::vector<Action>& actions) {
  while (!edge.ready.empty() && edge.credited >= begun_ && edge.in_flight < kSendsInFlightMax) {
    Action send = start_send(edge.ready.front());
    send.peer = edge.peer;
    actions.push_back(send);
    edge.ready.pop();
    ++edge.in_flight;
  }
}

void RoutedCollective::release(uint32_t buffer, std::vector<Action>& actions) const {
  actions.push_back({.kind = Action::Kind::kRelease, .buffer = buffer, .round = begun_});
}

void RoutedCollective::finish_if_done(std::vector<Action>& actions) {
  if (pieces_open_ > 0) return;
  const auto idle = [](Edge& edge) { return edge.in_flight == 0 && edge.ready.empty(); };
  GRADBUS_CHECK(active_ && std::all_of(edges_.begin(), edges_.end(), idle));
  active_ = false;
  actions.push_back({.kind = Action::Kind::kFinish, .round = begun_});
}

}  // namespace gradbus
