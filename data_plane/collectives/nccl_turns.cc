#include "data_plane/collectives/nccl_turns.h"

#include <algorithm>

#include "common/check.h"
#include "data_plane/collectives/frame_check.h"

namespace gradbus {

NcclTurns::NcclTurns(const CollectivePlan& plan) : plan_(plan) {
  GRADBUS_CHECK(plan.agents >= 2 && plan.count > 0 && (!gives() || plan.turns != nullptr));
  if (gives()) {
    credits_.resize(plan.agents);
    for (uint32_t agent = 1; agent < plan.agents; ++agent) needs_.targets.push_back({agent, 1});
  } else {
    needs_.sources = {0};
  }
  needs_.actions_max = plan.agents + 2;
}

void NcclTurns::begin(uint64_t round, std::span<const uint64_t>, std::vector<Action>&) {
  GRADBUS_CHECK(!active_ && round == begun_ + 1);
  begun_ = round;
  active_ = true;
  reduced_ = 0;
  has_turn_ = turn_ended_ = false;
}

void NcclTurns::on_chunk_reduced(uint32_t, std::vector<Action>& actions) {
  GRADBUS_CHECK(active_ && reduced_ < plan_.chunks());
  if (++reduced_ < plan_.chunks()) return;
  if (!gives())
    return actions.push_back({.kind = Action::Kind::kCredit, .peer = 0, .round = begun_});
  credits_[0] = begun_;
  give_turn(actions);
}

Status NcclTurns::on_credit(uint32_t from, uint64_t round, std::vector<Action>& actions) {
  if (!gives()) return refuse_credit(round, ", but nothing is ever sent on this link");
  const bool expected = round == credits_[from] + 1 && (round == begun_ || round == begun_ + 1);
  if (!expected)
    return refuse_credit(round, ", after one for round " + std::to_string(credits_[from]));
  credits_[from] = round;
  give_turn(actions);
  return {};
}

// Assigns a turn when the sums of all nodes are complete.
void NcclTurns::give_turn(std::vector<Action>& actions) {
  const auto ready = [this](uint64_t round) { return round == begun_; };
  if (!active_ || !std::ranges::all_of(credits_, ready)) return;
  const uint64_t turn = ++*plan_.turns;
  for (const CollectiveNeeds::Target& target : needs_.targets) {
    ++in_flight_;
    actions.push_back({.kind = Action::Kind::kSend,
                       .frame = FrameKind::kGather,
                       .peer = target.peer,
                       .round = begun_,
                       .total = turn});
  }
  take_turn(turn, actions);
}

void NcclTurns::take_turn(uint64_t turn, std::vector<Action>& actions) {
  has_turn_ = true;
  actions.push_back({.kind = Action::Kind::kTakeTurn, .round = begun_, .total = turn});
}

Status NcclTurns::check(uint32_t from, const FrameHeader& header) const {
  if (gives() || from != 0) return refuse_frame(header, "only agent 0 gives turns, to the others");
  if (!active_ || reduced_ < plan_.chunks() || has_turn_)
    return refuse_frame(header, "a turn that was not requested");
  GRADBUS_RETURN_IF_ERROR(expect_field(header, "step", header.step, begun_));
  GRADBUS_RETURN_IF_ERROR(check_signature(plan_, header));
  GRADBUS_RETURN_IF_ERROR(
      expect_field(header, "kind", header.kind, static_cast<uint64_t>(FrameKind::kGather)));
  return expect_field(header, "length", header.length, 0);
}

Status NcclTurns::on_frame(uint32_t from, const FrameHeader& header, uint32_t buffer,
                           std::vector<Action>& actions) {
  GRADBUS_RETURN_IF_ERROR(check(from, header));
  actions.push_back({.kind = Action::Kind::kRelease, .buffer = buffer, .round = begun_});
  take_turn(header.total, actions);
  return {};
}

void NcclTurns::on_sent(const Action&, std::vector<Action>& actions) {
  GRADBUS_CHECK(in_flight_ > 0);
  --in_flight_;
  finish(actions);
}

void NcclTurns::on_turn_ended(std::vector<Action>& actions) {
  GRADBUS_CHECK(active_ && has_turn_ && !turn_ended_);
  turn_ended_ = true;
  finish(actions);
}

void NcclTurns::finish(std::vector<Action>& actions) {
  if (!active_ || !turn_ended_ || in_flight_ > 0) return;
  active_ = false;
  actions.push_back({.kind = Action::Kind::kFinish, .round = begun_});
}

}  // namespace gradbus
