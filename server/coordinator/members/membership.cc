#include "server/coordinator/members/membership.h"

#include "common/check.h"

namespace gradbus {

void Membership::add(uint32_t rank, uint64_t agent, const AgentInfo& info, uint64_t pid) {
  GRADBUS_CHECK(rank < world_size_ && !ranks_.contains(rank));
  RankRecord& record = ranks_[rank];
  record.agent = agent;
  record.pid = pid;
  agents_.emplace(agent, info);
  ++added_[agent];
}

size_t Membership::added_through(uint64_t agent) const {
  const auto at = added_.find(agent);
  return at == added_.end() ? 0 : at->second;
}

RankRecord* Membership::find(uint32_t rank) {
  const auto at = ranks_.find(rank);
  return at == ranks_.end() ? nullptr : &at->second;
}

const RankRecord* Membership::find(uint32_t rank) const {
  const auto at = ranks_.find(rank);
  return at == ranks_.end() ? nullptr : &at->second;
}

AgentInfo* Membership::find_agent(uint64_t agent) {
  const auto at = agents_.find(agent);
  return at == agents_.end() ? nullptr : &at->second;
}

bool Membership::owns(uint64_t agent, uint32_t rank) const {
  const RankRecord* record = find(rank);
  return record != nullptr && record->agent == agent && record->state == RankRecord::State::kJoined;
}

bool Membership::has_left(uint32_t rank) const {
  const RankRecord* record = find(rank);
  return record != nullptr && record->state == RankRecord::State::kLeft;
}

RankSet Membership::joined() const {
  RankSet set;
  for (const auto& [rank, record] : ranks_) {
    if (record.state == RankRecord::State::kJoined) set.insert(set.end(), rank);
  }
  return set;
}

RankSet Membership::joined_through(uint64_t agent) const {
  RankSet set;
  for (const auto& [rank, record] : ranks_) {
    if (owns(agent, rank)) set.insert(set.end(), rank);
  }
  return set;
}

RankSet Membership::absent() const {
  RankSet set;
  for (uint32_t rank = 0; rank < world_size_; ++rank) {
    if (!ranks_.contains(rank)) set.insert(set.end(), rank);
  }
  return set;
}

const std::string& Membership::agent_name(uint32_t rank) const {
  return agents_.at(ranks_.at(rank).agent).name;
}

std::string Membership::describe_rank(uint32_t rank) const {
  return "rank " + std::to_string(rank) + " (" + clean_text(agent_name(rank)) + ", pid " +
         std::to_string(ranks_.at(rank).pid) + ")";
}

std::string Membership::places(const RankSet& ranks) const {
  std::map<uint64_t, RankSet> by_agent;
  for (const uint32_t rank : ranks) by_agent[ranks_.at(rank).agent].insert(rank);
  std::string text;
  size_t listed = 0;
  for (const auto& [agent, here] : by_agent) {
    if (listed++ == kListedMax) return text + ", ...";
    text.append(listed == 1 ? "" : ", ").append(rank_phrase(here));
    text.append(" (").append(clean_text(agents_.at(agent).name, 127)).append(")");
  }
  return text;
}

}  // namespace gradbus
