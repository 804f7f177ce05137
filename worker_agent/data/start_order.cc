#include "worker_agent/data/start_order.h"

#include <algorithm>
#include <string>

#include "common/check.h"
#include "common/errors.h"

namespace gradbus {
namespace {

Status refuse_start(const char* what, uint32_t tensor, uint64_t round) {
  return error("D601", std::string(what) + " of round " + std::to_string(round) + " of tensor " +
                           std::to_string(tensor) + " was not expected");
}

}  // namespace

void StartOrder::add(uint32_t tensor, const Limits& limits) {
  if (entries_.size() <= tensor) entries_.resize(tensor + 1);
  entries_[tensor] = std::make_unique<Entry>();
  entries_[tensor]->limits = limits;
  ++live_;
  ready_.reserve(live_);
  turns_.reserve(live_);
}

void StartOrder::remove(uint32_t tensor) {
  if (!has(tensor)) return;
  GRADBUS_CHECK(!find(tensor)->waits && !find(tensor)->runs);
  entries_[tensor].reset();
  --live_;
}

Status StartOrder::on_ready(uint32_t from, uint32_t tensor, uint64_t round) {
  Entry& entry = *find(tensor);
  const bool own = from == agent_;
  if (own) {
    GRADBUS_CHECK(!entry.waits && !entry.runs && round > entry.round);
    entry.round = round;
    entry.waits = true;
  }
  if (!leads()) return own ? Status() : refuse_start("a start frame", tensor, round);
  // All agents name the same round: none is ready for the next one before this one has begun.
  const bool first = entry.agents_ready == 0 && round > entry.asked_round;
  const bool another = entry.agents_ready > 0 && round == entry.asked_round;
  if (from >= agents_ || (!first && !another)) return refuse_start("a start frame", tensor, round);
  entry.asked_round = round;
  if (++entry.agents_ready < agents_) return {};
  entry.agents_ready = 0;
  if (!entry.waits || entry.round != round) return refuse_start("a start frame", tensor, round);
  entry.has_turn = true;
  ready_.push(tensor, entry.limits.priority);
  return {};
}

Status StartOrder::on_turn(const Turn& turn) {
  Entry& entry = *find(turn.tensor);
  const bool asked = entry.waits && !entry.has_turn && entry.round == turn.round;
  const auto same = [&](const Turn& other) { return other.number == turn.number; };
  if (leads() || !asked || turn.number <= last_turn_ || std::ranges::any_of(turns_, same))
    return refuse_start("a turn", turn.tensor, turn.round);
  entry.has_turn = true;
  turns_.push_back(turn);
  return {};
}

std::optional<StartOrder::Turn> StartOrder::next() {
  return leads() ? next_of_leader() : next_of_turns();
}

std::optional<StartOrder::Turn> StartOrder::next_of_leader() {
  if (ready_.empty()) return {};
  const uint32_t tensor = ready_.front();
  Entry& entry = *find(tensor);
  if (!fits(entry)) return {};
  ready_.pop();
  begin(entry);
  return Turn{tensor, entry.round, last_turn_};
}

std::optional<StartOrder::Turn> StartOrder::next_of_turns() {
  const auto at = std::ranges::find(turns_, last_turn_ + 1, &Turn::number);
  if (at == turns_.end() || !fits(*find(at->tensor))) return {};
  const Turn turn = *at;
  *at = turns_.back();
  turns_.pop_back();
  begin(*find(turn.tensor));
  return turn;
}

// Alone, a round may be larger than its budget.
bool StartOrder::fits(Entry& entry) {
  const Limits& limits = entry.limits;
  const bool fits = running_ == 0 || bytes_in_flight_ + limits.bytes <= limits.budget_bytes;
  if (!fits && !entry.delayed) ++delayed_;
  entry.delayed = !fits;
  return fits;
}

void StartOrder::begin(Entry& entry) {
  ++last_turn_;
  entry.waits = entry.has_turn = false;
  entry.runs = true;
  ++running_;
  bytes_in_flight_ += entry.limits.bytes;
  bytes_in_flight_max_ = std::max(bytes_in_flight_max_, bytes_in_flight_);
}

void StartOrder::ended(uint32_t tensor) {
  Entry* const entry = find(tensor);
  if (entry == nullptr || !entry->runs) return;
  entry->runs = false;
  --running_;
  bytes_in_flight_ -= entry->limits.bytes;
}

}  // namespace gradbus
