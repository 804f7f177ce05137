// Shards that come while a job runs, and what is to lie on those that are left. Tensors stay where
// they are until their ranks register them anew, at a fence; a shard that comes and goes before
// that has held nothing.
#include <algorithm>
#include <set>

#include "proto/placement.h"
#include "server/coordinator/jobs/coordinator_job.h"

namespace gradbus {
namespace {

constexpr Nanos kMoreMayCome = kSecond;  // shards are started together

}  // namespace

int CoordinatorJob::place_of(uint32_t shard, const std::vector<uint32_t>& members) {
  const auto at = std::ranges::find(members, shard);
  return at == members.end() ? -1 : static_cast<int>(at - members.begin());
}

void CoordinatorJob::shard_attached(uint64_t shard, const AgentInfo& info, Nanos now) {
  const bool fits = state_ == State::kRunning && !options_.keep_shards && !shards_.empty() &&
                    registrations_.uses_shards() && info.addresses.contains(transport_) &&
                    shards_.size() < kPlacementEntriesMax && !shards_.contains(shard);
  if (!fits) return;
  shards_.add(shard, info);
  place_at_ = now + kMoreMayCome;
}

// Where there is anything to win: the ranks are asked to move to it.
void CoordinatorJob::place_anew(const std::string& why) {
  place_at_ = 0;
  const AgentInfos living = shards_.living();
  ShardMap next;
  uint32_t index = 0;
  for (const auto& [id, info] : shards_) {
    if (!info.lost) next.members.push_back(index);
    ++index;
  }
  const std::string what = title() + ": " + why + "; ";
  if (options_.keep_shards || next.members == shard_maps_.back().members || living.empty()) return;
  if (living.size() < 2 && shard_maps_.back().members.size() > 1)
    return outbox_->note(what + "there are second copies again when another shard is started");
  if (shard_maps_.size() == kPlacementsMax)
    return outbox_->note(what + "it keeps its shards: it has moved " +
                         std::to_string(kPlacementsMax) + " times");
  next.of = place_shards(membership_.agents(), living, transport_, options_.equal_shards);
  const auto count = static_cast<uint32_t>(living.size());
  const auto period = static_cast<uint32_t>(next.of.pattern.size());
  outbox_->note(what + "after the next fence " + next.of.why);
  shard_maps_.push_back(std::move(next));
  registrations_.set_shards(count, period == 0 ? count : period,
                            static_cast<uint32_t>(shard_maps_.size()) - 1);
  v1::CoordinatorMessage started;
  *started.mutable_job_started() = started_message();
  started.mutable_job_started()->clear_secret();  // shards have no ranks
  for (const auto& [id, info] : shards_)
    if (!info.lost && shards_told_.insert(id).second) outbox_->send(id, started);
  tell_everyone(shards_changed());
  ask_to_move();
}

v1::CoordinatorMessage CoordinatorJob::shards_changed() const {
  v1::CoordinatorMessage message;
  auto* changed = message.mutable_shards_changed();
  changed->set_job_id(identity_.id);
  for (const auto& [id, info] : shards_) {
    auto* shard = changed->add_shards();
    shard->set_agent_id(id);
    shard->set_name(info.name);
    shard->set_address(info.addresses.at(transport_));
    shard->set_lost(info.lost);
  }
  for (const ShardMap& shard_map : shard_maps_) {
    auto* set = changed->add_placements();
    set->mutable_members()->Add(shard_map.members.begin(), shard_map.members.end());
    set->mutable_pattern()->Add(shard_map.of.pattern.begin(), shard_map.of.pattern.end());
  }
  return message;
}

// Where to, a registration is told, so the newest of several counts for all.
void CoordinatorJob::ask_to_move() {
  v1::CoordinatorMessage message;
  auto* changed = message.mutable_mode_changed();
  changed->set_job_id(identity_.id);
  changed->set_group("*");
  changed->set_mode("placement=" + std::to_string(++moves_asked_));
  outbox_->send_all(membership_.agents(), std::move(message));
}

// Of the tensors that have moved last.
uint32_t CoordinatorJob::placement_in_use() const {
  const auto places = registrations_.places();
  return places.empty() ? placement_at_end_ : places.rbegin()->first;
}

}  // namespace gradbus
