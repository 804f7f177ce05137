#include "server/roll.h"

#include "common/check.h"

namespace gradbus {

void Roll::add(uint32_t rank, uint64_t agent, const AgentCard& card, uint64_t pid) {
  GRADBUS_CHECK(rank < world_size_ && !ranks_.contains(rank));
  RankRecord& record = ranks_[rank];
  record.agent = agent;
  record.pid = pid;
  agents_.emplace(agent, card);
  ++added_[agent];
}

size_t Roll::added_through(uint64_t agent) const {
  const auto at = added_.find(agent);
  return at == added_.end() ? 0 : at->second;
}

RankRecord* Roll::find(uint32_t rank) {
  const auto at = ranks_.find(rank);
  return at == ranks_.end() ? nullptr : &at->second;
}

const RankRecord* Roll::find(uint32_t rank) const {
  const auto at = ranks_.find(rank);
  return at == ranks_.end() ? nullptr : &at->second;
}

AgentCard* Roll::find_agent(uint64_t agent) {
  const auto at = agents_.find(agent);
  return at == agents_.end() ? nullptr : &at->second;
}

bool Roll::owns(uint64_t agent, uint32_t rank) const {
  const RankRecord* record = find(rank);
  return record != nullptr && record->agent == agent && record->state == RankRecord::State::kJoined;
}

bool Roll::has_left(uint32_t rank) const {
  const RankRecord* record = find(rank);
  return record != nullptr && record->state == RankRecord::State::kLeft;
}

RankSet Roll::joined() const {
  RankSet set;
  for (const auto& [rank, record] : ranks_) {
    if (record.state == RankRecord::State::kJoined) set.insert(set.end(), rank);
  }
  return set;
}

RankSet Roll::joined_through(uint64_t agent) const {
  RankSet set;
  for (const auto& [rank, record] : ranks_) {
    if (owns(agent, rank)) set.insert(set.end(), rank);
  }
  return set;
}

RankSet Roll::absent() const {
  RankSet set;
  for (uint32_t rank = 0; rank < world_size_; ++rank) {
    if (!ranks_.contains(rank)) set.insert(set.end(), rank);
  }
  return set;
}

const std::string& Roll::agent_name(uint32_t rank) const {
  return agents_.at(ranks_.at(rank).agent).name;
}

std::string Roll::person(uint32_t rank) const {
  return "rank " + std::to_string(rank) + " (" + clean_text(agent_name(rank)) + ", pid " +
         std::to_string(ranks_.at(rank).pid) + ")";
}

std::string Roll::places(const RankSet& ranks) const {
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
