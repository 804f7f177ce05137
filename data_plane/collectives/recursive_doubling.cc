#include "data_plane/collectives/recursive_doubling.h"

#include <algorithm>
#include <bit>

#include "common/check.h"
#include "data_plane/collectives/frame_check.h"

namespace gradbus {

RecursiveDoubling::RecursiveDoubling(const CollectivePlan& plan)
    : plan_(plan), bytes_(plan.count * dtype_bytes(plan.dtype)), registered_(plan.agents) {
  GRADBUS_CHECK(plan.agents >= 2 && plan.agent_index < plan.agents);
  GRADBUS_CHECK(plan.chunks() == 1 && bytes_ <= kFramePayloadBytesMax);
  plan_steps(plan);
  arrived_.resize(2 * needs_.sources.size());
  needs_.stash_slots = static_cast<uint32_t>(arrived_.size());
  needs_.actions_max = steps_.size() + needs_.sources.size() + 4;
}

void RecursiveDoubling::plan_steps(const CollectivePlan& plan) {
  const uint32_t me = plan.agent_index;
  const uint32_t core = std::bit_floor(plan.agents);
  if (me >= core) {
    add_step(Move::kSendSum, me - core);
    add_step(Move::kTakeResult, me - core);
    return;
  }
  const bool folds = me + core < plan.agents;
  if (folds) add_step(Move::kAddSum, me + core);
  for (uint32_t bit = 1; bit < core; bit *= 2) {
    add_step(Move::kSendSum, me ^ bit);
    add_step(Move::kAddSum, me ^ bit);
  }
  add_step(Move::kFinalize, me);
  if (folds) add_step(Move::kSendResult, me + core);
}

// Each peer sends and gets at most one frame a round.
void RecursiveDoubling::add_step(Move move, uint32_t peer) {
  const bool receives = move == Move::kAddSum || move == Move::kTakeResult;
  steps_.push_back({move, peer, static_cast<uint32_t>(2 * needs_.sources.size())});
  if (receives) needs_.sources.push_back(peer);
  if (sends(move)) needs_.targets.push_back({peer, 1});
}

void RecursiveDoubling::open(std::vector<Action>& actions) {
  for (const uint32_t peer : needs_.sources)
    actions.push_back({.kind = Action::Kind::kCredit, .peer = peer, .round = 1});
}

void RecursiveDoubling::begin(uint64_t round, std::span<const uint64_t>,
                              std::vector<Action>& actions) {
  GRADBUS_CHECK(!active_ && round == begun_ + 1);
  begun_ = round;
  active_ = true;
  next_ = 0;
  reduced_ = plan_.count == 0;  // without elements there is nothing to wait for
  advance(actions);
}

void RecursiveDoubling::on_chunk_reduced(uint32_t chunk, std::vector<Action>& actions) {
  if (plan_.count == 0) return;
  GRADBUS_CHECK(active_ && chunk == 0 && !reduced_);
  reduced_ = true;
  advance(actions);
}

Status RecursiveDoubling::on_credit(uint32_t from, uint64_t round, std::vector<Action>& actions) {
  const auto to_it = [&](const CollectiveNeeds::Target& target) { return target.peer == from; };
  if (std::none_of(needs_.targets.begin(), needs_.targets.end(), to_it))
    return refuse_credit(round, ", but nothing is ever sent on this link");
  if (round != 1 || registered_[from])
    return refuse_credit(round, ", but this tensor has one credit, for round 1");
  registered_[from] = true;
  advance(actions);
  return {};
}

void RecursiveDoubling::on_sent(const Action&, std::vector<Action>& actions) {
  GRADBUS_CHECK(active_ && in_flight_);
  in_flight_ = false;
  advance(actions);
}

// ---- the steps of a round

void RecursiveDoubling::advance(std::vector<Action>& actions) {
  if (!active_ || !reduced_) return;
  while (next_ < steps_.size() && carry_out(steps_[next_], actions)) ++next_;
  if (next_ < steps_.size() || in_flight_) return;
  active_ = false;
  actions.push_back({.kind = Action::Kind::kFinish, .round = begun_});
}

// Returns false when the step must wait.
bool RecursiveDoubling::carry_out(const Step& step, std::vector<Action>& actions) {
  if (sends(step.move)) {
    if (in_flight_ || !registered_[step.peer]) return false;
    in_flight_ = true;
    actions.push_back(act(Action::Kind::kSend));
    actions.back().frame = step.move == Move::kSendResult ? FrameKind::kGather : FrameKind::kReduce;
    actions.back().peer = step.peer;
    return true;
  }
  if (in_flight_) return false;  // other steps write the memory that the last send reads
  if (step.move == Move::kFinalize) {
    actions.push_back(act(Action::Kind::kFinalize));
    return true;
  }
  if (arrived_[slot(step, begun_)] != begun_) return false;
  actions.push_back(take(step));
  actions.back().stashed = true;
  actions.back().slot = slot(step, begun_);
  return true;
}

bool RecursiveDoubling::may_take(const Step& step) const {
  return active_ && reduced_ && !in_flight_ && next_ < steps_.size() && &steps_[next_] == &step;
}

Action RecursiveDoubling::take(const Step& step) const {
  Action action =
      act(step.move == Move::kAddSum ? Action::Kind::kAccumulate : Action::Kind::kDeliver);
  action.payload_first = step.peer < plan_.agent_index;
  return action;
}

// ---- frames

const RecursiveDoubling::Step* RecursiveDoubling::receiving_step(uint32_t from) const {
  const auto of_it = [&](const Step& step) {
    return step.peer == from && (step.move == Move::kAddSum || step.move == Move::kTakeResult);
  };
  const auto at = std::find_if(steps_.begin(), steps_.end(), of_it);
  return at == steps_.end() ? nullptr : &*at;
}

Status RecursiveDoubling::check(uint32_t from, const FrameHeader& header) const {
  const Step* step = receiving_step(from);
  if (step == nullptr) return refuse_frame(header, "no data ever comes over this link");
  if (header.step != begun_ + 1) {
    if (!active_) return expect_field(header, "step", header.step, begun_ + 1);
    GRADBUS_RETURN_IF_ERROR(expect_field(header, "step", header.step, begun_));
  }
  GRADBUS_RETURN_IF_ERROR(check_signature(plan_, header));
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "kind", header.kind,
                   static_cast<uint64_t>(step->move == Move::kTakeResult ? FrameKind::kGather
                                                                         : FrameKind::kReduce)));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "source", header.source, 0));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "total", header.total, plan_.count));
  GRADBUS_RETURN_IF_ERROR(expect_below(header, "chunk", header.chunk, 1));
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "length", header.length, bytes_));
  if (arrived_[slot(*step, header.step)] == header.step)
    return refuse_frame(header, "sum of agent " + std::to_string(from) + " for the second time");
  return {};
}

Status RecursiveDoubling::on_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                                   std::vector<Action>& actions) {
  GRADBUS_RETURN_IF_ERROR(check(from, header));
  const Step& step = *receiving_step(from);
  const bool now = header.step == begun_ && may_take(step);
  arrived_[slot(step, header.step)] = header.step;
  Action action = now ? take(step) : act(Action::Kind::kStash);
  action.round = header.step;
  action.buffer = buffer;
  action.slot = slot(step, header.step);
  actions.push_back(action);
  actions.push_back({.kind = Action::Kind::kRelease, .buffer = buffer, .round = header.step});
  if (now) ++next_;
  advance(actions);
  return {};
}

Action RecursiveDoubling::act(Action::Kind kind) const {
  return {.kind = kind, .round = begun_, .bytes = bytes_, .total = plan_.count};
}

}  // namespace gradbus
